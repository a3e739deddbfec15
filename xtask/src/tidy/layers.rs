//! Which modules of a package may use which: those on lower floors.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use super::Violation;
use super::files::File;
use super::source;

/// The floors of each package, the lowest first, with the top modules on them. A module may use modules
/// of lower floors only, so that no two use each other, not even by way of others. Unit tests are free.
#[rustfmt::skip]
const FLOORS: &[(&str, &[&str])] = &[
    ("crates/packet", &[
        "buf excerpt flow_key instant ip_fields mac malformed",
        "checksum",
        "write",
        "cookie ethernet gre gue icmp ipv6 memory port_range prefix seed udp vxlan",
        "arp ipv4 text",
        "ip tcp",
        "fragment",
        "icmpv6",
        "nd",
        "answer build classify own_header",
        "ipip nat",
    ]),
    ("crates/ring", &[
        "moves record sync",
        "memory memory_loom",
        "shared",
        "consumer producer",
        "mesh",
    ]),
    ("crates/arena", &[
        "free proc request",
        "error limits mapping mapping_miri obtained",
        "obtain",
        "arena",
        "boxed",
    ]),
    ("crates/capture", &["frame", "input", "pcap pcapng", "pcapng_write read write", "merge"]),
    ("crates/flow", &[
        "group key lines prefetch stats",
        "config eviction_state",
        "clock eviction",
        "entry",
        "store_view",
        "hints store",
        "place table",
        "lookup room visit",
        "insert",
    ]),
    ("crates/stage", &[
        "core counters error",
        "gauge",
        "burst token_bucket",
        "io tap",
        "verdict",
        "stage",
        "classify",
    ]),
    ("crates/neighbours", &["key", "entry link", "asked claim", "table", "learn resolve watch"]),
    ("crates/watch", &["place", "load", "snapshot", "tap"]),
    ("crates/engine", &[
        // Plain values, and the trait of a part of a graph.
        "clock deployment idle node_info panic_origin settle sources sources_by_time topology turn",
        "placement wait worker",
        // Between cores, and from control to cores.
        "core_counters ledger mailbox publish",
        "chain lister report",
        "assembly monitor report_text",
        "control",
        "thread",
        "engine",
    ]),
    ("crates/dpdk", &[
        "errno lcore_id log mbuf_count stack timestamp",
        "error",
        "device lock mbuf",
        "eal",
        "bpf mempool",
        "lcore",
        "port",
    ]),
    ("crates/testing", &[
        "alloc_guard bench frame planted rng syscalls",
        "faults malformed pool steady",
        "port_state",
        "port_queues",
        "port",
        "simulator",
    ]),
    ("crates/machine", &[
        "cpu_list finding",
        "root setup",
        "device",
        "machine",
        "cgroup interrupts kernel libraries memory power vip",
        "cores device_checks",
        "checks",
        "start",
    ]),
    ("crates/live", &["args piece summary", "client", "session", "sessions"]),
    ("crates/load", &[
        "event figures pools progress task",
        "intruder scheduling stall_watcher",
        "loads",
    ]),
    ("crates/metrics", &["family", "http", "client", "server", "scraped"]),
    ("crates/kernel", &[
        "netlink tables tun",
        "follower local routes takeover tap vips",
        "next_hops port",
    ]),
    ("crates/ops", &[
        "deployment hangup idle links notify path port_settings queue request seconds table unix",
        "cpus devices diagnostics listing load output socket",
        "ask common failure privileges",
        "live metrics watch",
        "ctl stall_args steer",
        "operation program",
        "run_args",
    ]),
    ("crates/top", &["programs", "rates", "sections", "screen"]),
    ("crates/balancer", &[
        "address capture_order maglev route state tcp_flags",
        "exceptions",
        "hashes",
        "spec",
        "classify clock limits rules",
        "services vlan",
        "connection counts",
        "connections",
        "balance",
        "exception_mover",
    ]),
    ("crates/agreement", &["barrier join known", "standing"]),
    ("crates/cluster", &["pem random settings", "store sync", "replace"]),
    ("crates/health", &[
        "deadline echo probe_state room settings",
        "http quorum schedule tls",
        "conversation tunnel",
        "probe",
        "poller",
        "watch",
    ]),
    ("examples/nat44", &[
        "ctl drops fragments",
        "ports seen settings",
        "connections",
        "nat",
    ]),
    ("examples/firewall", &["packet", "connection rules", "firewall", "operator"]),
    ("examples/ipip-lb", &[
        "dropped failure until",
        "answer",
        "config outcome vip_guard",
        "check exception hugepages request",
        "announce ctl next_hops overrides store",
        "network_function port_hops reference replace source",
        "cli control",
        "detach replay run",
    ]),
    ("examples/ipip-endpoint", &[
        "arrival outer",
        "settings",
        "cli endpoint",
        "graph",
        "run",
    ]),
    ("examples/udp", &[
        "address arguments interfaces rate stamp",
        "verify",
        "inspect",
        "output",
        "running",
        "source",
        "sink",
    ]),
    ("benches", &[
        "buffer datagrams engines",
        "forwarder traffic",
        "configuration testpmd",
        "bed peers",
    ]),
    ("benches/measure", &[
        "cpu_time figure hugepages interactive program random svg watch",
        "bars cores row",
        "bare_lines table",
        "distance",
        "slices",
        "instrument",
        "alternate contest",
    ]),
    ("fuzz", &["captures configuration device script sync", "balancer neighbours", "control"]),
    ("tests", &[
        "alone free_address network planted privileges program",
        "host prometheus siege",
        "schema",
    ]),
    ("xtask", &[
        "failure",
        "process",
        "rustc setup skips workspace",
        "api changed demo instructions package soak steps tidy",
        "bench lines links test",
        "check",
    ]),
];

/// A package with fewer top modules needs no floors.
const MODULES_MIN: usize = 4;

/// Files above all floors: libraries, programs, and the folder of further programs.
const ROOTS: [&str; 3] = ["lib", "main", "bin"];

/// Every use of a module that is not on a lower floor, packages that [`FLOORS`] lacks, and modules
/// that it lacks or has too many of.
pub fn check(files: &[File]) -> Vec<Violation> {
    let is_root =
        |file: &&File| file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs");
    let folders: BTreeSet<_> = files
        .iter()
        .filter(is_root)
        .filter_map(|file| Some((file.path.parent()?.parent()?, file.path.parent()?)))
        .collect();
    let of_package = |(package, src): (&Path, &Path)| {
        let floors = FLOORS.iter().find(|(name, _)| Path::new(name) == package);
        check_package(files, src, floors.map(|(_, floors)| *floors))
    };
    folders.into_iter().flat_map(of_package).collect()
}

/// A file of a package, without tests.
struct Source<'a> {
    file: &'a File,
    /// The module that the file is, from the top module on.
    module: Vec<String>,
    code: String,
}

impl Source<'_> {
    /// `None` for a root.
    fn top_module(&self) -> Option<&str> {
        self.module.first().map(String::as_str).filter(|name| !ROOTS.contains(name))
    }
}

/// The sources in the folder `src`.
fn sources<'a>(files: &'a [File], src: &Path) -> Vec<Source<'a>> {
    let source = |file: &'a File| {
        let path = file.path.strip_prefix(src).ok().filter(|_| file.is_rust())?;
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests")
            || path.iter().any(|folder| folder == "tests");
        (!is_test).then(|| Source {
            file,
            module: module_path(path),
            code: production_code(&file.text),
        })
    };
    files.iter().filter_map(source).collect()
}

fn check_package(files: &[File], src: &Path, floors: Option<&[&str]>) -> Vec<Violation> {
    let sources = sources(files, src);
    let modules: BTreeSet<_> = sources.iter().filter_map(Source::top_module).collect();
    let folder = src.display().to_string();
    let Some(floors) = floors else {
        let what = format!("{} modules without floors in xtask/src/tidy/layers.rs", modules.len());
        let is_small = modules.len() < MODULES_MIN;
        return if is_small { Vec::new() } else { vec![Violation::new(folder, what)] };
    };
    let floor_of: HashMap<&str, usize> = floors
        .iter()
        .enumerate()
        .flat_map(|(floor, names)| names.split(' ').map(move |name| (name, floor)))
        .collect();
    let lib = sources.iter().find(|source| source.module == ["lib"]);
    let exported = lib.map(|source| exported(&source.code)).unwrap_or_default();
    let missing = floor_of.keys().filter(|module| !modules.contains(*module));
    let mut violations: Vec<_> = missing
        .map(|module| Violation::new(folder.as_str(), format!("has no module {module}")))
        .collect();
    for source in &sources {
        let (path, code) = (&source.file.path, &source.code);
        let Some(module) = source.top_module() else { continue };
        let Some(floor) = floor_of.get(module) else {
            let what = format!("{module} has no floor in xtask/src/tidy/layers.rs");
            violations.push(Violation::at(path, 0, what));
            continue;
        };
        for (at, name) in uses(code, source.module.len()) {
            let used = exported.get(name).map_or(name, String::as_str);
            let is_lower = floor_of.get(used).is_none_or(|used_floor| used_floor < floor);
            if used != module && !is_lower {
                let what = format!("{module} may not use {used}, which is not on a lower floor");
                violations.push(Violation::at(path, source::line_index(code, at), what));
            }
        }
    }
    violations
}

/// The module that a file is, from the top module on: `["a", "b"]` for `a/b.rs`.
fn module_path(path: &Path) -> Vec<String> {
    let names = path.with_extension("");
    let names: Vec<_> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    match names.split_last() {
        Some((last, folders)) if last == "mod" => folders.to_vec(),
        _ => names,
    }
}

/// Code without comments, literals and the module of unit tests, which ends a file.
fn production_code(text: &str) -> String {
    let mut code = source::code_only(text);
    let is_of_tests = |at: usize| {
        let mut lines = code[at..].lines();
        lines.next().is_some_and(|condition| condition.contains("test"))
            && lines.next().is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    };
    let mut conditions = code.match_indices("#[cfg(").map(|(at, _)| at);
    if let Some(end) = conditions.find(|at| is_of_tests(*at)) {
        code.truncate(end);
    }
    code
}

/// The names that `lib.rs` re-exports, with the modules that they are from.
fn exported(code: &str) -> HashMap<String, String> {
    let mut exported = HashMap::new();
    for at in source::word_positions(code, "use") {
        let path = code[at + 3..].split(';').next().unwrap_or("").trim_start();
        let Some((module, names)) = path.split_once("::") else { continue };
        let names = names.split(|c: char| !c.is_alphanumeric() && c != '_');
        exported.extend(names.map(|name| (name.to_owned(), module.to_owned())));
    }
    exported
}

/// The first name of each path that begins at the root of the package, with its position. The code is
/// of a module that is `depth` modules below the root.
fn uses(code: &str, depth: usize) -> Vec<(usize, &str)> {
    let of_crate =
        source::word_positions(code, "crate").map(|at| (at, &code[at + "crate".len()..]));
    let first_super = |at: &usize| !code[..*at].ends_with("super::");
    let of_super = source::word_positions(code, "super").filter(first_super).filter_map(|at| {
        let mut rest = &code[at..];
        for step in 0..depth {
            rest = if step == 0 { rest } else { rest.strip_prefix("::")? };
            rest = rest.strip_prefix("super")?;
        }
        Some((at, rest))
    });
    let rests = of_crate.chain(of_super);
    rests.filter_map(|(at, rest)| Some((at, rest.strip_prefix("::")?))).flat_map(names).collect()
}

/// The first names of what follows `crate::`: one, or those of a list in braces.
fn names((at, rest): (usize, &str)) -> Vec<(usize, &str)> {
    let Some(list) = rest.strip_prefix('{') else { return vec![(at, name(rest))] };
    let (mut depth, mut names, mut begins) = (0, Vec::new(), true);
    for (index, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            _ if begins && !c.is_whitespace() => {
                names.push((at, name(&list[index..])));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

fn name(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOORS: &[&str] = &["low", "middle beside", "high"];

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let all = [
            ("p/src/low.rs", ""),
            ("p/src/middle.rs", ""),
            ("p/src/beside.rs", ""),
            ("p/src/high.rs", ""),
        ];
        let given =
            |path: &str| files.iter().find(|(given, _)| *given == path).map(|(_, text)| *text);
        let files = all.iter().map(|(path, _)| (*path, given(path).unwrap_or(""))).chain(
            files.iter().copied().filter(|(path, _)| !all.iter().any(|(known, _)| known == path)),
        );
        let files: Vec<_> =
            files.map(|(path, text)| File { path: path.into(), text: text.to_owned() }).collect();
        check_package(&files, Path::new("p/src"), Some(FLOORS))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn an_import_from_the_same_or_a_higher_floor_is_found_at_its_line() {
        assert_eq!(
            found(&[("p/src/high.rs", "use crate::low::A;\nuse crate::{middle::B, beside};\n")]),
            [""; 0]
        );
        let what =
            |module, used| format!("{module} may not use {used}, which is not on a lower floor");
        for (path, text, expected) in [
            (
                "p/src/low.rs",
                "\nuse crate::high::A;\n",
                format!("p/src/low.rs:2: {}", what("low", "high")),
            ),
            (
                "p/src/middle.rs",
                "use crate::{low::{A, B}, beside::C};",
                format!("p/src/middle.rs:1: {}", what("middle", "beside")),
            ),
            (
                "p/src/low/deep.rs",
                "use super::super::middle::A;",
                format!("p/src/low/deep.rs:1: {}", what("low", "middle")),
            ),
            (
                "p/src/low/mod.rs",
                "fn f() { super::high::g() }",
                format!("p/src/low/mod.rs:1: {}", what("low", "high")),
            ),
            (
                "p/src/low.rs",
                "// crate::high\nfn f(_: crate::high::A) {}",
                format!("p/src/low.rs:2: {}", what("low", "high")),
            ),
        ] {
            assert_eq!(found(&[(path, text)]), [expected]);
        }
    }

    #[test]
    fn names_that_the_root_exports_count_as_of_their_modules() {
        let lib = ("p/src/lib.rs", "mod high;\npub use high::{Top, Other};\n");
        let what = "p/src/low.rs:1: low may not use high, which is not on a lower floor";
        assert_eq!(found(&[lib, ("p/src/low.rs", "use crate::Top;")]), [what]);
        assert_eq!(found(&[lib, ("p/src/low.rs", "use crate::Free;")]), [""; 0]);
        let lib = ("p/src/lib.rs", "#[cfg(test)]\nmod low;\npub use high::Top;\n");
        assert_eq!(found(&[lib, ("p/src/low.rs", "use crate::Top;")]), [what]);
    }

    #[test]
    fn tests_and_a_modules_own_parts_are_free() {
        let own = ("p/src/low/deep.rs", "use super::A;\nuse crate::low::B;");
        let test = ("p/src/low.rs", "#[cfg(test)]\nmod tests {\n    use crate::high::A;\n}\n");
        assert_eq!(found(&[own, test, ("p/src/low/tests.rs", "use crate::high::A;")]), [""; 0]);
        let text =
            "#[cfg(all(test, feature = \"dpdk\"))]\nmod tests {\n    use crate::high::A;\n}\n";
        assert_eq!(found(&[("p/src/low.rs", text)]), [""; 0]);
    }

    #[test]
    fn modules_without_a_floor_and_floors_without_a_module_are_found() {
        let new = found(&[("p/src/new.rs", "")]);
        assert_eq!(new, ["p/src/new.rs:1: new has no floor in xtask/src/tidy/layers.rs"]);
        let files = [File { path: "p/src/low.rs".into(), text: String::new() }];
        assert_eq!(check_package(&files, Path::new("p/src"), Some(FLOORS)).len(), 3);
    }

    #[test]
    fn a_package_of_many_modules_without_floors_is_found() {
        let package = |modules: &[&str]| -> Vec<_> {
            let roots_too = modules.iter().chain(&["lib", "main", "bin/other"]);
            let file =
                |name| File { path: format!("new/src/{name}.rs").into(), text: String::new() };
            check(&roots_too.map(file).collect::<Vec<_>>())
        };
        assert_eq!(package(&["a", "b", "b/part", "c"]), []);
        let what = "4 modules without floors in xtask/src/tidy/layers.rs";
        assert_eq!(package(&["a", "b", "c", "d"]), [Violation::new("new/src", what)]);
    }

    #[test]
    fn each_module_is_on_one_floor() {
        for (package, floors) in super::FLOORS {
            let names: Vec<_> = floors.iter().flat_map(|names| names.split(' ')).collect();
            let different: BTreeSet<_> = names.iter().collect();
            assert_eq!(different.len(), names.len(), "{package}");
        }
    }
}
