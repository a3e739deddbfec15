//! Mistakes in the keys for the balancer's operation: its memory, its choices, its probes.

const KINDS: &str = "write \"tcp\", \"http\", \"https\", \"icmp\" or \"udp\"";

/// Like [`WRONG`](super::cases::WRONG).
pub const WRONG_LIVING: &[(usize, &str, &[&str])] = &[
    // [cluster]
    (
        13,
        "[cluster]\nlisten = \"192.0.2.1:4790\"",
        &["13: cluster.node: missing", "node = \"lb-a\""],
    ),
    (13, "[cluster]\nnode = \"A\"", &["14: cluster.node: ", "lower-case letters"]),
    (13, "[cluster]\nnode = \"a\"", &["13: cluster.peers: missing"]),
    (
        13,
        "[cluster]\nnode = \"a\"\npeers = [{ name = \"b\", address = \"192.0.2.2:4790\" }]",
        &["13: cluster.listen: missing", "or this node among the peers"],
    ),
    (
        13,
        "[cluster]\nnode = \"b\"\npeers = [{ name = \"b\", address = \"192.0.2.2:4790\" }]",
        &["13: cluster.certificate: missing", "or trusted_network = true"],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nlisten = \"192.0.2.1\"\npeers = [{ name = \"b\", address = \"192.0.2.2:4790\" }]",
        &["15: cluster.listen: ", "write 192.0.2.1:4790"],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nlisten = \"192.0.2.1:1\"\ntrusted_network = true\nkey = \"k\"\npeers = [{ name = \"b\", address = \"192.0.2.2:4790\" }]",
        &["17: cluster.key: ", "leave out one of the two"],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nlisten = \"192.0.2.1:1\"\npeers = [{ name = \"b\", address = \"[::1]:1\" }, { name = \"b\", address = \"[::1]:2\" }]",
        &["cluster.peers[1].name: b is there twice"],
    ),
    // [balancer]
    (
        7,
        "source_v4 = \"192.0.2.1/26\"",
        &["7: balancer.source_v4: \"192.0.2.1/26\" has address bits", "write 192.0.2.0/26"],
    ),
    (7, "source_v4 = \"128.0.0.0/1\"", &["7: balancer.source_v4: not the address of one host"]),
    (7, "source_v4 = \"192.0.2.0/33\"", &["7: balancer.source_v4", "from 0 to 32"]),
    (
        8,
        "source_v6 = \"192.0.2.0/26\"",
        &["8: balancer.source_v6", "is not an IPv6 address or prefix; write 2001:db8::1"],
    ),
    (8, "source_v6 = \"ff00::/8\"", &["8: balancer.source_v6: not the address of one host"]),
    (
        7,
        "source_v4 = \"10.0.0.0/28\"",
        &["27: service.web.backend[0].address: 10.0.0.1 is the balancer's own"],
    ),
    (
        12,
        "icmp_echo = \"yes\"",
        &["12: balancer.icmp_echo: \"yes\" is not", "write \"reply\", \"forward\" or \"drop\""],
    ),
    (
        12,
        "clamp_mss = \"yes\"",
        &["12: balancer.clamp_mss: \"yes\" is neither true nor false; write one of them"],
    ),
    (12, "maglev_slots = 65536", &["12: balancer.maglev_slots: 65536 is not a prime; write 65537"]),
    (12, "maglev_slots = 5", &["12: balancer.maglev_slots: 5 is out of range", "7 to 1000003"]),
    (12, "maglev_slots = 1000033", &["12: balancer.maglev_slots: 1000033 is out of range"]),
    (
        12,
        "new_connections_per_second_max = -1",
        &["12: balancer.new_connections_per_second_max: -1 is out of range", "0 to 4294967295"],
    ),
    (
        12,
        "icmp_eco = \"drop\"",
        &[
            "12: balancer.icmp_eco: unknown key; the keys known here are source_v4, source_v6, mtu, \
             decapsulate, tunnel_peers, connections_max, icmp_echo, clamp_mss, maglev_slots, \
             new_connections_per_second_max, timeouts_s",
        ],
    ),
    (
        12,
        "timeouts_s = 60",
        &["12: balancer.timeouts_s: 60 is not a table; write [balancer.timeouts_s]"],
    ),
    (
        12,
        "timeouts_s = { tcp = 60 }",
        &[
            "12: balancer.timeouts_s.tcp: unknown key",
            "tcp_opening, tcp_established, tcp_closing, udp, other",
        ],
    ),
    (
        12,
        "[balancer.timeouts_s]\nudp = 0",
        &["13: balancer.timeouts_s.udp: 0 is out of range; write a whole number from 1 to 2592000"],
    ),
    // [[service]]
    (
        25,
        "scheduler = \"wrr\"",
        &["25: service.web.scheduler: \"wrr\" is not a scheduler; write \"maglev\", \
             \"round-robin\", \"least-connections\" or \"source\""],
    ),
    (
        25,
        "persistence_s = 60",
        &["25: service.web.persistence_s: maglev keeps no clients; write scheduler = \"source\""],
    ),
    (25, "persistence_s = 2592001", &["25: service.web.persistence_s: 2592001 is out of range"]),
    (25, "persistence_s = \"1h\"", &["25: service.web.persistence_s: \"1h\" is out of range"]),
    (
        25,
        "all_down = \"reject\"",
        &["25: service.web.all_down: \"reject\" is not", "write \"forward\" or \"drop\""],
    ),
    (
        25,
        "persistence = 60",
        &["25: service.web.persistence: unknown key; the keys known here are name, address, \
             protocol, ports, scheduler, persistence_s, all_down, \
             new_connections_per_second_max, health, backend"],
    ),
    // [service.health]
    (
        25,
        "health = \"tcp\"",
        &["25: service.web.health: \"tcp\" is not a table; write [service.health]"],
    ),
    (25, "[service.health]", &["25: service.web.health.kind: missing; write kind = \"tcp\""]),
    (25, "health = { kind = \"ping\" }", &["25: service.web.health.kind: \"ping\" is not", KINDS]),
    (
        25,
        "health = { kind = \"tcp\", interval = 5 }",
        &["25: service.web.health.interval: unknown key; the keys known here are kind, port, \
             interval_ms, timeout_ms, rise, fall, path, expect_status, ca_file, insecure"],
    ),
    (
        25,
        "health = { kind = \"tcp\", port = 0 }",
        &["25: service.web.health.port: 0 is out of range"],
    ),
    (
        24,
        "ports = \"80-81\"\nhealth = { kind = \"tcp\" }",
        &[
            "25: service.web.health.port: missing, and the service has more than one; write port = 80",
        ],
    ),
    (
        25,
        "health = { kind = \"icmp\", port = 7 }",
        &["25: service.web.health.port: an echo request has no port; leave it out"],
    ),
    (
        25,
        "health = { kind = \"tcp\", interval_ms = 9 }",
        &["25: service.web.health.interval_ms: 9 is out of range", "from 10 to 3600000"],
    ),
    (
        25,
        "health = { kind = \"tcp\", interval_ms = 500, timeout_ms = 501 }",
        &["25: service.web.health.timeout_ms: longer than interval_ms; write 500 or less"],
    ),
    (
        25,
        "health = { kind = \"tcp\", rise = 0 }",
        &["25: service.web.health.rise: 0 is out of range"],
    ),
    (25, "health = { kind = \"tcp\", fall = 101 }", &["25: service.web.health.fall", "1 to 100"]),
    (
        25,
        "health = { kind = \"tcp\", path = \"/\" }",
        &["25: service.web.health.path: only probes of kind http and https have one; leave it out"],
    ),
    (
        25,
        "health = { kind = \"icmp\", expect_status = 200 }",
        &["25: service.web.health.expect_status: only probes of kind http and https have one"],
    ),
    (
        25,
        "health = { kind = \"http\", insecure = true }",
        &["25: service.web.health.insecure: only probes of kind https have one; leave it out"],
    ),
    (
        25,
        "health = { kind = \"http\", path = \"healthz\" }",
        &["25: service.web.health.path: \"healthz\" is not a path; write \"/healthz\""],
    ),
    (25, "health = { kind = \"http\", path = \"/a b\" }", &["25: service.web.health.path"]),
    (
        25,
        "health = { kind = \"http\", expect_status = 99 }",
        &["25: service.web.health.expect_status: 99 is out of range", "from 200 to 599"],
    ),
    (
        25,
        "health = { kind = \"https\" }",
        &[
            "25: service.web.health.ca_file: missing; write ca_file = \"ca.pem\", or insecure = true",
        ],
    ),
    (
        25,
        "health = { kind = \"https\", insecure = true, ca_file = \"ca.pem\" }",
        &["25: service.web.health.ca_file: insecure = true trusts anybody; leave out one"],
    ),
    (
        25,
        "[service.health]\nkind = \"https\"\nca_file = \"none.pem\"",
        &["27: service.web.health.ca_file: none.pem: No such file", "name a PEM file"],
    ),
    (
        25,
        "health = { kind = \"https\", ca_file = \"lb.toml\" }",
        &["25: service.web.health.ca_file: lb.toml: has no certificate in it; name a PEM file"],
    ),
    (
        25,
        "health = { kind = \"https\", ca_file = \"\" }",
        &["25: service.web.health.ca_file: \"\""],
    ),
];
