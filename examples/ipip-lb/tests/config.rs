//! Configurations for tests.

/// The beginning of every configuration of these tests; `balancer` has further keys of [balancer],
/// or replaces those that are here.
pub fn preamble(balancer: &str) -> String {
    let has = |key: &str| balancer.lines().any(|line| line.trim_start().starts_with(key));
    let mut keys: Vec<_> = [
        ("source_v4", r#""192.0.2.1""#),
        ("source_v6", r#""2001:db8::1""#),
        ("mtu", "1500"),
        ("decapsulate", r#"["192.0.2.1", "2001:db8::1"]"#),
        ("tunnel_peers", r#"["10.9.9.0/24", "2001:db8:9::/48"]"#),
        ("connections_max", "4096"),
        ("maglev_slots", "251"),
    ]
    .into_iter()
    .filter(|(key, _)| !has(key))
    .map(|(key, value)| format!("{key} = {value}"))
    .collect();
    keys.push(balancer.to_owned());
    format!(
        r#"
        [balancer]
        {}

        [[port]]
        name = "clients"
        device = "net_null0"
        next_hop_mac = "02:00:00:00:01:01"
        side = "client"

        [[port]]
        name = "backends"
        device = "net_null1"
        next_hop_mac = "02:00:00:00:02:01"
        side = "backend"
        "#,
        keys.join("\n")
    )
}

/// A service. Its backends are written `10.0.0.1`, or `10.0.0.1*3` for another weight than 1.
/// `what` is address, protocol and ports: `203.0.113.10 tcp 80`.
pub fn service(name: &str, what: &str, keys: &str, backends: &[&str]) -> String {
    let words: Vec<_> = what.split(' ').collect();
    let [address, protocol, ports] = words[..] else { panic!("{what:?}") };
    let backends = backends.iter().map(|backend| {
        let (address, weight) = backend.split_once('*').unwrap_or((backend, "1"));
        format!("[[service.backend]]\naddress = \"{address}\"\nweight = {weight}\n")
    });
    format!(
        "[[service]]\nname = \"{name}\"\naddress = \"{address}\"\nprotocol = \"{protocol}\"\n\
         ports = \"{ports}\"\n{keys}\n{}",
        backends.collect::<String>()
    )
}
