//! A configuration in two parts: a node's own file, and the part in a store that all nodes share.

use super::document::{Origin, Section};
use super::health::CaFiles;
use super::store::{OPERATOR_FILE, operator_file, store};
use super::{Config, ConfigError, Store, parse};

/// The sections of a node's file. For sections in both parts, the keys in the node's file.
const OF_NODE: [(&str, Option<&[&str]>); 7] = [
    ("engine", None),
    ("metrics", None),
    ("port", None),
    ("announce", None),
    ("cluster", None),
    (
        "balancer",
        Some(&["source_v4", "source_v6", "decapsulate", "connections_max", OPERATOR_FILE]),
    ),
    ("health", Some(&["probe_source"])),
];

/// A minimal file of a node. Its addresses are for benchmarks of networks (RFC 2544, RFC 5180), so
/// that no service should have them.
const ANY_NODE: &str = r#"
[balancer]
source_v4 = "198.18.0.1"
source_v6 = "2001:2::1"
decapsulate = []
[health]
probe_source = ["198.18.0.2", "2001:2::2"]
[[port]]
name = "any"
device = "net_null0"
next_hop_mac = "02:00:00:00:00:01"
"#;

impl Config {
    /// The store that the text of a node's file names, if any. The files that the node writes are
    /// checked, too, and nothing else: without a store, the rest can't be.
    ///
    /// # Errors
    /// If the text is not TOML, or `[cluster]` or `balancer.operator_file` is invalid.
    pub fn store_of(file: &str, text: &str) -> Result<Option<Store>, ConfigError> {
        let origin = Origin { file, text };
        let table = origin.parse()?;
        let root = Section::root(origin, &table);
        let Some(cluster) = root.section("cluster")? else { return Ok(None) };
        let store = store(&cluster, &mut CaFiles::of(file))?;
        if let Some((store, balancer)) = store.as_ref().zip(root.section("balancer")?) {
            operator_file(&balancer, Some(&store.node), Some(store))?;
        }
        Ok(store)
    }

    /// The configuration of a node: its own file, and the part that all nodes share. Each is a pair
    /// of the text's name in messages, and the text.
    ///
    /// # Errors
    /// Like [`Config::parse`], and if a key is in the wrong part, or in both.
    pub fn parse_shared(node: (&str, &str), shared: (&str, &str)) -> Result<Self, ConfigError> {
        let origin = |(file, text)| Origin { file, text };
        let (node, shared) = (origin(node), origin(shared));
        let (node_table, shared_table) = (node.parse()?, shared.parse()?);
        let node_root = Section::root(node, &node_table);
        let shared_root = Section::root(shared, &shared_table);
        check_shared(&shared_root)?;
        check_node(&node_root, &shared_root, shared.file)?;
        node_root.present("port", "at least one [[port]]")?;
        parse::config(node.file, &shared_root.with(node, &node_table))
    }

    /// Checks the shared text by itself, as the configuration of a node with a minimal file.
    ///
    /// # Errors
    /// As [`parse_shared`](Self::parse_shared).
    pub fn parse_shared_alone((file, text): (&str, &str)) -> Result<Self, ConfigError> {
        // Files that the text names are next to its own file.
        let (node, shared) = (Origin { file, text: ANY_NODE }, Origin { file, text });
        let (node_table, shared_table) = (node.parse()?, shared.parse()?);
        let shared_root = Section::root(shared, &shared_table);
        check_shared(&shared_root)?;
        parse::config(file, &shared_root.with(node, &node_table))
    }
}

/// Checks that the shared text has its own sections, so that an error about a missing one names
/// this text, and no key of a single node.
fn check_shared(shared: &Section<'_>) -> Result<(), ConfigError> {
    let of_node = |key: &&str| OF_NODE.iter().any(|(name, keys)| name == key && keys.is_none());
    if let Some(key) = shared.keys().into_iter().find(of_node) {
        let problem =
            "belongs to one node; leave it out here, and write it in the file of each node";
        return Err(shared.error_at(key, problem));
    }
    shared.present("balancer", "[balancer] with mtu")?;
    shared.present("service", "[[service]]")?;
    Ok(())
}

/// Checks that a node's file sets no key that belongs in the shared part.
fn check_node(node: &Section<'_>, shared: &Section<'_>, store: &str) -> Result<(), ConfigError> {
    for key in node.keys() {
        let Some((_, allowed)) = OF_NODE.iter().find(|(name, _)| *name == key) else {
            return Err(node.error_at(key, of_all(store)));
        };
        let Some(allowed) = allowed else { continue };
        let Some(section) = node.section(key)? else { continue };
        let other = shared.section(key)?;
        for inner in section.keys() {
            if !allowed.contains(&inner) {
                return Err(section.error_at(inner, of_all(store)));
            }
            if let Some(other) = other.as_ref().and_then(|other| other.optional(inner)) {
                let line = other.line();
                let problem =
                    format!("{store} has it, too, on line {line}; leave it out in one of them");
                return Err(section.error_at(inner, problem));
            }
        }
    }
    Ok(())
}

fn of_all(store: &str) -> String {
    format!(
        "all nodes have the same, from {store}; leave it out here, and change it there by \
         `ipip-lb cluster apply`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "[cluster]\nnode = \"a\"\nstore = \"etcd://a:1\"\n[engine]\nworkers = 1\n[balancer]\nsource_v4 = \"192.0.2.1\"\n[[port]]\nname = \"up\"\ndevice = \"net_null0\"\nnext_hop_mac = \"02:00:00:00:00:01\"\n";
    const SHARED: &str = "[balancer]\nmtu = 1500\ndecapsulate = []\n[[service]]\nname = \"web\"\naddress = \"203.0.113.10\"\nprotocol = \"tcp\"\nports = \"80\"\nbackend = [{ address = \"10.0.0.1\" }]\n";

    /// Two nodes, one of them this node.
    const PEERS: &str = "trusted_network = true\npeers = [{ name = \"a\", address = \"192.0.2.1:4790\" }, { name = \"b\", address = \"192.0.2.2:4790\" }]\n";

    fn parse(node: &str, shared: &str) -> Result<Config, String> {
        Config::parse_shared(("node.toml", node), ("etcd://a:1", shared))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn both_parts_are_one_configuration() {
        let config = parse(NODE, SHARED).unwrap();
        assert_eq!((config.balancer.mtu, config.engine.workers), (1500, 1));
        assert_eq!(config.balancer.source_v4.to_string(), "192.0.2.1");
        assert_eq!(config.services[0].name, "web");
        let store = config.store.unwrap();
        assert_eq!(store.copy.to_str(), Some("/var/lib/ipip-lb/a.toml"));
        assert_eq!(Config::store_of("node.toml", NODE).unwrap(), Some(store));
        let kept = config.operator_file.unwrap();
        assert_eq!(kept.to_str(), Some("/var/lib/ipip-lb/a.operator.json"));
        let alone = Config::parse_shared_alone(("lb.toml", SHARED)).unwrap();
        assert_eq!((alone.operator_file, alone.quorum), (None, None));
        let probed =
            SHARED.replace("backend =", "health = { kind = \"tcp\", via = \"tunnel\" }\nbackend =");
        Config::parse_shared_alone(("lb.toml", &probed)).unwrap();
    }

    #[test]
    fn the_quorum_is_of_all_nodes_and_at_most_their_number() {
        let with = |quorum| format!("{SHARED}[health]\nquorum = {quorum}\n");
        assert_eq!(parse(NODE, &with(32)).unwrap().quorum, Some(32));
        Config::parse_shared_alone(("lb.toml", &with(32))).unwrap();
        let peered = NODE.replace("[engine]", &format!("{PEERS}[engine]"));
        assert_eq!(parse(&peered, &with(2)).unwrap().quorum, Some(2));
        let error = parse(&peered, &with(3)).unwrap_err();
        assert_eq!(
            error,
            "etcd://a:1:11: health.quorum: 3 is out of range; write a whole number from 1 to 2"
        );
        let error = parse(&format!("{NODE}[health]\nquorum = 1\n"), SHARED).unwrap_err();
        assert!(
            error.starts_with("node.toml:13: health.quorum: all nodes have the same"),
            "{error}"
        );
    }

    #[test]
    fn what_is_wrong_is_named_by_its_text_and_line() {
        for (node, shared, expected) in [
            (
                NODE.to_owned(),
                SHARED.replace("mtu = 1500", "mtu = 1"),
                "etcd://a:1:2: balancer.mtu: ",
            ),
            (
                NODE.to_owned(),
                SHARED.replace("mtu = 1500\n", ""),
                "etcd://a:1:1: balancer.mtu: missing",
            ),
            (
                NODE.to_owned(),
                SHARED.replace("10.0.0.1", "10"),
                "etcd://a:1:9: service.web.backend[0].address",
            ),
            (
                NODE.to_owned(),
                SHARED.replace("mtu = 1500", "mut = 1500"),
                "etcd://a:1:2: balancer.mut: unknown",
            ),
            (
                NODE.to_owned(),
                format!("{SHARED}[engine]\n"),
                "etcd://a:1:10: engine: belongs to one node",
            ),
            (
                NODE.to_owned(),
                SHARED.replace("[balancer]", "[[port]]\n[balancer]"),
                "etcd://a:1:1: port: belongs",
            ),
            (
                NODE.to_owned(),
                "[balancer]\nmtu = 1500\n".to_owned(),
                "etcd://a:1:1: service: missing",
            ),
            (NODE.to_owned(), "nonsense".to_owned(), "etcd://a:1:1: nonsense: not TOML"),
            (
                NODE.replace("workers = 1", "workers = 0"),
                SHARED.to_owned(),
                "node.toml:5: engine.workers: ",
            ),
            (
                NODE.replace("source_v4 =", "mtu = 9\nsource_v4 ="),
                SHARED.to_owned(),
                "node.toml:7: balancer.mtu: all nodes",
            ),
            (
                format!("{NODE}[limits]\n"),
                SHARED.to_owned(),
                "node.toml:12: limits: all nodes have the same",
            ),
            (format!("{NODE}[[service]]\n"), SHARED.to_owned(), "node.toml:12: service: all nodes"),
            (
                NODE.to_owned(),
                SHARED.replace("mtu", "source_v4 = \"192.0.2.2\"\nmtu"),
                "node.toml:7: balancer.source_v4: etcd://a:1 has it, too, on line 2",
            ),
            (
                NODE.split_once("[[port]]").unwrap().0.to_owned(),
                SHARED.to_owned(),
                "node.toml:1: port: missing",
            ),
        ] {
            let error = parse(&node, &shared).unwrap_err();
            assert!(error.starts_with(expected), "{error}\nwanted {expected}");
        }
    }
}
