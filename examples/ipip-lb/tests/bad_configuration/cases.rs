//! Mistakes in the keys that every configuration has.

/// A valid configuration, line by line: each case changes one of the lines.
pub const SOUND: &str = r#"[engine]
deployment = "pipeline"
dispatchers = 1
workers = 2

[balancer]
source_v4 = "192.0.2.1"
source_v6 = "2001:db8::1"
mtu = 1500
decapsulate = ["192.0.2.1", "2001:db8::1"]
tunnel_peers = ["198.51.100.0/24"]
connections_max = 65536

[[port]]
name = "uplink"
device = "net_null0"
next_hop_mac = "02:00:00:00:00:01"
side = "both"

[[service]]
name = "web"
address = "203.0.113.10"
protocol = "tcp"
ports = "80"
scheduler = "maglev"
  [[service.backend]]
  address = "10.0.0.1"
  weight = 1
  [[service.backend]]
  address = "2001:db8::a"
"#;

/// The number of the replaced line (0: insert before the first), its replacement, and the text
/// after `lb.toml:` in the message.
pub const WRONG: &[(usize, &str, &[&str])] = &[
    // Not TOML, or of another shape.
    (2, "deployment = pipeline", &["2: deployment: not TOML", "mend this line"]),
    (9, "mtu = ", &["9: mtu: not TOML"]),
    (13, "[balancer]", &["13: [balancer]: not TOML"]),
    (18, "kernel_interface = \"\"", &["18: port.uplink.kernel_interface: ", "1 to 15 letters"]),
    (13, "[announce]", &["13: announce.vips: missing", "vips = \"ready\""]),
    (13, "[announce]\nvips = \"some\"", &["14: announce.vips: ", "\"ready\" or \"always\""]),
    (
        13,
        "announce.vips = \"ready\"\nannounce.interface = \"a b\"",
        &["balancer.announce: unknown key"],
    ),
    (
        13,
        "[announce]\nvips = \"always\"\ninterface = \"a/b\"",
        &["15: announce.interface: ", "1 to 15 letters"],
    ),
    (
        13,
        "[announce]\nvips = \"always\"\nlinger_ms = 20001",
        &["15: announce.linger_ms: ", "from 0 to 20000"],
    ),
    (
        13,
        "[announce]\nvips = \"always\"\nhold_s = 301",
        &["15: announce.hold_s: ", "from 0 to 300"],
    ),
    (13, "[cluster]", &["13: cluster.node: missing", "node = \"lb-a\""]),
    (
        13,
        "[cluster]\nnode = \"a\"\nstore = \"http://a:1\"",
        &["15: cluster.store: ", "is no address of a store; write etcd://HOST:PORT"],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nstore_copy = \"/a\"",
        &["15: cluster.store_copy: there is no store; write store ="],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nstore = \"etcd://a:1\"\nstore_copy = \"a\"",
        &["16: cluster.store_copy: ", "is not an absolute path"],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nstore_authority = \"ca.pem\"",
        &["15: cluster.store_authority: there is no store; write store ="],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nstore = \"etcd://a:1\"\nstore_certificate = \"a.pem\"\nstore_key = \"a.key\"",
        &["16: cluster.store_certificate: without store_authority", "in clear"],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nstore = \"etcd://a:1\"\nstore_user = \"lb\"\nstore_password_file = \"password\"",
        &["16: cluster.store_user: without store_authority", "in clear"],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nstore = \"etcd://a:1\"\nstore_authority = \"ca.pem\"\nstore_certificate = \"a.pem\"",
        &["17: cluster.store_certificate: useless without store_key; write both"],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nstore = \"etcd://a:1\"\nstore_authority = \"ca.pem\"\nstore_key = \"a.key\"",
        &["17: cluster.store_key: useless without store_certificate"],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nstore = \"etcd://a:1\"\nstore_authority = \"ca.pem\"\nstore_user = \"lb\"",
        &["17: cluster.store_user: useless without store_password_file"],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nstore = \"etcd://a:1\"\nstore_authority = \"ca.pem\"\nstore_password_file = \"password\"",
        &["17: cluster.store_password_file: useless without store_user"],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nstore = \"etcd://a:1\"\nstore_authority = \"no.pem\"",
        &["16: cluster.store_authority: no.pem: No such file", "name a PEM file of certificates"],
    ),
    (
        13,
        "[cluster]\nnode = \"a\"\nstore = \"etcds://a:1\"",
        &["15: cluster.store: ", "write etcd://HOST:PORT", "store_authority for TLS"],
    ),
    (
        11,
        "operator_file = \"a\"",
        &[
            "11: balancer.operator_file: ",
            "is not an absolute path; write \"/var/lib/ipip-lb/operator_file",
        ],
    ),
    (
        0,
        "colour = \"blue\"",
        &[
            "1: colour: unknown key",
            "engine, balancer, health, limits, metrics, announce, cluster, port, service",
        ],
    ),
    (1, "[machine]", &["1: machine: unknown key"]),
    (4, "worker = 2", &["4: engine.worker: unknown key", "deployment, dispatchers, workers"]),
    (12, "timeout = 5", &["12: balancer.timeout: unknown key"]),
    (13, "[health]\nsource = 5", &["14: health.source: unknown key", "probe_source"]),
    (
        13,
        "[health]\nprobe_source = [\"192.0.2.1\"]",
        &["14: health.probe_source[0]: 192.0.2.1 is an end of tunnels", "write another"],
    ),
    (
        13,
        "[health]\nprobe_source = [\"192.0.2.9\", \"192.0.2.10\"]",
        &["14: health.probe_source[1]: the second one of its IP version"],
    ),
    (13, "[health]\nquorum = 0", &["14: health.quorum: 0 is out of range", "from 1 to 32"]),
    (13, "[health]\nquorum = 33", &["14: health.quorum: 33 is out of range", "from 1 to 32"]),
    (
        13,
        "[health]\nquorum = 1",
        &["14: health.quorum: nodes say what they find down through a store", "leave it out"],
    ),
    (
        13,
        "[health]\nprobe_source = [\"203.0.113.10\"]",
        &["1: health.probe_source: 203.0.113.10 is a service's", "write another"],
    ),
    (
        25,
        "health = { kind = \"tcp\", via = \"tunnel\" }",
        &["25: service.web.health.via: there is no address for replies", "probe_source = ["],
    ),
    (
        25,
        "health = { kind = \"icmp\", via = \"both\" }",
        &["25: service.web.health.via: only tcp and http go through a tunnel"],
    ),
    (
        25,
        "health = { kind = \"tcp\", via = \"air\" }",
        &["25: service.web.health.via: \"air\" is not a way", "\"tunnel\" or \"both\""],
    ),
    (13, "[limits]\nconnections = 5", &["14: limits.connections: unknown key", "source_prefix_v4"]),
    (
        13,
        "[limits]\nservice_new_connections_per_second_max = 0",
        &["14: limits.service_new_connections_per_second_max: 0 is out", "from 1 to 10000000"],
    ),
    (
        13,
        "[limits]\nsource_prefix_v4 = 33\nsource_new_connections_per_second_max = 1",
        &["14: limits.source_prefix_v4: 33 is out", "from 1 to 32"],
    ),
    (
        13,
        "[limits]\nsource_prefix_v6 = 64",
        &["13: limits.source_prefix_v6: there is no limit", "source_new_connections_per"],
    ),
    (
        25,
        "new_connections_per_second_max = -1",
        &["25: service.web.new_connections_per_second_max: -1 is out"],
    ),
    (12, "nested_backends = [\"10.0.0.0/8\"]", &["12: balancer.nested_backends[0]: "]),
    (
        27,
        "address = \"203.0.113.10\"",
        &[
            "27: service.web.backend[0].address: 203.0.113.10 is service web's address",
            "nested_backends = [\"203.0.113.10\"]",
        ],
    ),
    (12, "hash_key = 5", &["12: balancer.hash_key: not a key of 32 hexadecimal", "ipip-lb keygen"]),
    (12, "hash_key = \"0x0f\"", &["12: balancer.hash_key: not a key of 32 hexadecimal"]),
    (18, "rx_descriptors = 0", &["18: port.uplink.rx_descriptors: 0 is out", "from 1 to 65535"]),
    (18, "tx_descriptors = 65_536", &["18: port.uplink.tx_descriptors", "from 1 to 65535"]),
    (18, "mbufs = 1_073_741_824", &["18: port.uplink.mbufs", "from 1 to 1073741823"]),
    (18, "mbufs = \"many\"", &["18: port.uplink.mbufs: \"many\" is out of range"]),
    (18, "rss = \"ip,sctp\"", &["18: port.uplink.rss: write some of ip, tcp and udp", "or none"]),
    (18, "rss = true", &["18: port.uplink.rss: true is not a string"]),
    (18, "speed = 10", &["18: port.uplink.speed: unknown key", "name, device"]),
    (24, "port = \"80\"", &["24: service.web.port: unknown key"]),
    (25, "schedule = \"x\"", &["25: service.web.schedule: unknown key"]),
    (
        28,
        "wight = 1",
        &["28: service.web.backend[0].wight: unknown key; the keys known here are address, weight"],
    ),
    // [engine]
    (
        2,
        "deployment = \"both\"",
        &[
            "2: engine.deployment: \"both\" is not a deployment; write \"run-to-completion\" or \"pipeline\"",
        ],
    ),
    (2, "deployment = 1", &["2: engine.deployment: 1 is not a deployment"]),
    (
        3,
        "dispatchers = 0",
        &["3: engine.dispatchers: 0 is out of range; write a whole number from 1 to 60"],
    ),
    (4, "workers = 61", &["4: engine.workers: 61 is out of range"]),
    (4, "workers = \"2\"", &["4: engine.workers: \"2\" is out of range; write a whole number"]),
    (4, "workers = -1", &["4: engine.workers: -1 is out of range"]),
    (
        5,
        "idle = \"sleep\"",
        &[
            "5: engine.idle: \"sleep\" is not an idle mode; write \"spin\", \"pause\" or \"adaptive\"",
        ],
    ),
    // [balancer]
    (6, "", &["7: engine.source_v4: unknown key"]),
    (7, "", &["6: balancer.source_v4: missing; write source_v4 = \"192.0.2.1\""]),
    (
        7,
        "source_v4 = \"2001:db8::1\"",
        &[
            "7: balancer.source_v4: \"2001:db8::1\" is not an IPv4 address or prefix; write 192.0.2.1 or 192.0.2.0/26",
        ],
    ),
    (7, "source_v4 = \"224.0.0.1\"", &["7: balancer.source_v4: not the address of one host"]),
    (8, "source_v6 = \"192.0.2.1\"", &["8: balancer.source_v6", "write 2001:db8::1"]),
    (8, "source_v6 = \"::\"", &["8: balancer.source_v6: not the address of one host"]),
    (
        9,
        "mtu = 575",
        &["9: balancer.mtu: 575 is out of range; write a whole number from 576 to 65535"],
    ),
    (9, "mtu = 1279", &["9: balancer.mtu: 1279 is too small for IPv6 as it is used here; write 1"]),
    (9, "mtu = 65536", &["9: balancer.mtu: 65536 is out of range"]),
    (9, "mtu = 1500.0", &["9: balancer.mtu: 1500.0 is out of range; write a whole number"]),
    (10, "", &["6: balancer.decapsulate: missing; write decapsulate = []"]),
    (
        10,
        "decapsulate = \"192.0.2.1\"",
        &["10: balancer.decapsulate", "is not a list; write [\"192.0.2.1\"]"],
    ),
    (
        10,
        "decapsulate = [\"192.0.2.1\",\n \"192.0.2\"]",
        &["11: balancer.decapsulate[1]: \"192.0.2\" is not an IP address"],
    ),
    (
        11,
        "tunnel_peers = [\"198.51.100.7/24\"]",
        &["11: balancer.tunnel_peers[0]", "write 198.51.100.0/24"],
    ),
    (11, "tunnel_peers = [\"198.51.100.0/33\"]", &["11: balancer.tunnel_peers[0]", "from 0 to 32"]),
    (12, "connections_max = 0", &["12: balancer.connections_max: 0 is out of range"]),
    (12, "connections_max = 99999999", &["12: balancer.connections_max: 99999999 is out of range"]),
    (
        7,
        "source_v4 = \"::ffff:192.0.2.1\"",
        &["7: balancer.source_v4: \"::ffff:192.0.2.1\" is not an IPv4 address or prefix"],
    ),
    (8, "source_v6 = \"::ffff:192.0.2.1\"", &["8: balancer.source_v6", "write 192.0.2.1"]),
    (
        10,
        "decapsulate = [\"::ffff:192.0.2.1\"]",
        &["10: balancer.decapsulate[0]", "mapped from IPv4 into IPv6", "write 192.0.2.1"],
    ),
    (11, "tunnel_peers = [\"::ffff:10.0.0.0/104\"]", &["11: balancer.tun", "write 10.0.0.0/8"]),
    // [[port]]
    (14, "[port]", &["port: not a list of tables; write [[port]]"]),
    (15, "", &["14: port[0].name: missing"]),
    (15, "name = \"up link\"", &["15: port[0].name: \"up link\" is not a name"]),
    (16, "", &["14: port.uplink.device: missing"]),
    (16, "device = \"\"", &["16: port.uplink.device: \"\" is not a device", "net_null0"]),
    (
        17,
        "next_hop_mac = \"02:00:00:00:00\"",
        &["17: port.uplink.next_hop_mac", "write 02:00:00:00:00:01"],
    ),
    (17, "next_hop_mac = \"02-00-00-00-00-01\"", &["17: port.uplink.next_hop_mac"]),
    (17, "next_hop_mac = \"01:00:5e:00:00:01\"", &["17: port.uplink.next_hop_mac", "of one host"]),
    (17, "next_hop_mac = \"00:00:00:00:00:00\"", &["17: port.uplink.next_hop_mac"]),
    (
        17,
        "",
        &[
            "port.uplink.next_hop_mac: missing; write next_hop_mac",
            "or next_hop and address, or kernel_interface = \"edge0\" to go by the kernel's routes",
        ],
    ),
    (
        17,
        "next_hop_mac = 7\nkernel_interface = \"edge0\"",
        &["17: port.uplink.next_hop_mac: 7 is not"],
    ),
    (
        17,
        "next_hop = \"192.0.2.1\"",
        &["port.uplink.address: missing; write the balancer's own address on the link"],
    ),
    (
        17,
        "next_hop = \"192.0.2.1\"\naddress = \"2001:db8::2\"",
        &["18: port.uplink.address: is not of the IP version of next_hop"],
    ),
    (
        17,
        "next_hop = \"192.0.2.256\"\naddress = \"192.0.2.2\"",
        &["17: port.uplink.next_hop: \"192.0.2.256\" is not an IP address"],
    ),
    (
        17,
        "next_hop_mac = \"02:00:00:00:00:01\"\nnext_hop = \"192.0.2.1\"",
        &["18: port.uplink.next_hop: there is a next_hop_mac too"],
    ),
    (
        18,
        "side = \"left\"",
        &[
            "18: port.uplink.side: \"left\" is not a side; write \"client\", \"backend\" or \"both\"",
        ],
    ),
    (18, "side = \"client\"", &["port: no port leads to backends; write side = \"both\" for one"]),
    (18, "side = \"backend\"", &["port: no port leads to clients"]),
    (
        18,
        "[[port]]\nname = \"uplink\"\ndevice = \"net_null1\"\nnext_hop_mac = \"02:00:00:00:00:01\"",
        &["18: port.uplink.name: \"uplink\" names another port too"],
    ),
    (
        18,
        "[[port]]\nname = \"b\"\ndevice = \"net_null0\"\nnext_hop_mac = \"02:00:00:00:00:01\"",
        &["20: port.b.device: \"net_null0\" is another port's too"],
    ),
    (
        18,
        "kernel_interface = \"edge0\"\n[[port]]\nname = \"b\"\ndevice = \"net_null1\"\nnext_hop_mac = \"02:00:00:00:00:01\"\nkernel_interface = \"edge0\"",
        &["23: port.b.kernel_interface: is another port's too"],
    ),
    (18, "vlan = 0", &["18: port.uplink.vlan: 0 is out of range", "1 to 4094"]),
    (18, "vlan = 4095", &["18: port.uplink.vlan: 4095 is out of range", "1 to 4094"]),
    (18, "takeover = true", &["18: port.uplink.takeover: there is no kernel_interface"]),
    (
        18,
        "kernel_peers = []",
        &["18: port.uplink.kernel_peers: there is no kernel_interface; write one"],
    ),
    (
        18,
        "kernel_interface = \"edge0\"\nkernel_peers = [\"192.0.2.254\"]",
        &["19: port.uplink.kernel_peers: not a list of tables; write [[port.kernel_peers]]"],
    ),
    (
        18,
        "kernel_interface = \"edge0\"\nkernel_peers = [{ gtsm = true }]",
        &["19: port.uplink.kernel_peers[0].address: missing; write address = \"192.0.2.254\""],
    ),
    (
        18,
        "kernel_interface = \"edge0\"\nkernel_peers = [{ address = \"192.0.2.254/24\" }]",
        &["19: port.uplink.kernel_peers[0].address: ", "write 192.0.2.0/24"],
    ),
    (
        18,
        "kernel_interface = \"edge0\"\nkernel_peers = [{ address = \"192.0.2.254\", gtsm = 255 }]",
        &["19: port.uplink.kernel_peers[0].gtsm: 255 is neither true nor false"],
    ),
    (
        18,
        "kernel_interface = \"edge0\"\n[[port.kernel_peers]]\naddress = \"192.0.2.254\"\n[[port.kernel_peers]]\naddress = \"192.0.2.254\"",
        &["22: port.uplink.kernel_peers[1].address: 192.0.2.254 is there twice"],
    ),
    (
        18,
        "kernel_interface = \"edge0\"\ntakeover = true",
        &["16: port.uplink.device: \"net_null0\" is not a device by which the kernel receives"],
    ),
    // [[service]]
    (21, "name = \"\"", &["21: service[0].name: \"\" is not a name; write 1 to 63 letters"]),
    (
        22,
        "address = \"203.0.113.300\"",
        &["22: service.web.address: \"203.0.113.300\" is not an IP address or prefix"],
    ),
    (22, "address = \"203.0.113.10/24\"", &["22: service.web.address", "write 203.0.113.0/24"]),
    (22, "address = \"::ffff:203.0.113.10\"", &["22: service.web.address", "write 203.0.113.10"]),
    (22, "address = [\"203.0.113.10\"]", &["22: service.web.address", "is not a string"]),
    (
        23,
        "protocol = \"sctp\"",
        &[
            "23: service.web.protocol: \"sctp\" is not a protocol; write \"tcp\", \"udp\" or \"any\"",
        ],
    ),
    (24, "ports = 80", &["24: service.web.ports: 80 is not a port, a range or any; write \"80\""]),
    (24, "ports = \"0\"", &["24: service.web.ports: \"0\" is not a port", "from 1 to 65535"]),
    (24, "ports = \"65536\"", &["24: service.web.ports"]),
    (24, "ports = \"90-80\"", &["24: service.web.ports", "the lower first"]),
    (24, "ports = \"80,443\"", &["24: service.web.ports", "\"8000-8999\""]),
    (24, "ports = \"80-\"", &["24: service.web.ports"]),
    (
        25,
        "scheduler = \"random\"",
        &["25: service.web.scheduler: \"random\" is not a scheduler; write \"maglev\""],
    ),
    (
        25,
        "[[service]]\nname = \"b\"\naddress = \"203.0.113.10/32\"\nprotocol = \"tcp\"\nports = \"80-80\"",
        &["27: service.b.address: 203.0.113.10 tcp 80 is service web's too"],
    ),
    (
        25,
        "[[service]]\nname = \"web\"\naddress = \"203.0.113.11\"\nprotocol = \"tcp\"\nports = \"80\"",
        &["25: service.web.name: \"web\" names another service too"],
    ),
    (20, "[service]", &["20: service: not a list of tables; write [[service]]"]),
    (27, "", &["26: service.web.backend[0].address: missing; write address = \"10.0.0.1\""]),
    (
        27,
        "address = \"10.0.0.300\"",
        &[
            "27: service.web.backend[0].address: \"10.0.0.300\" is not an IP address; write 10.0.0.1 or 2001:db8::1",
        ],
    ),
    (
        27,
        "address = \"::ffff:10.0.0.1\"",
        &[
            "27: service.web.backend[0].address: \"::ffff:10.0.0.1\" is mapped from IPv4 into IPv6, \
             where no packet has it; write 10.0.0.1",
        ],
    ),
    (
        27,
        "address = \"255.255.255.255\"",
        &["27: service.web.backend[0].address: not the address of one host"],
    ),
    (
        27,
        "address = \"192.0.2.1\"",
        &["27: service.web.backend[0].address: 192.0.2.1 is the balancer's own"],
    ),
    (
        28,
        "weight = -1",
        &[
            "28: service.web.backend[0].weight: -1 is out of range; write a whole number from 0 to 65535",
        ],
    ),
    (28, "weight = 65536", &["28: service.web.backend[0].weight"]),
    (
        30,
        "address = \"10.0.0.1\"",
        &["30: service.web.backend[1].address: 10.0.0.1 is in the service already"],
    ),
];
