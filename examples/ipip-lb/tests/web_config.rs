//! The configuration of a service that several tests share.

/// A balancer with one port, which receives no packets, and one service over TCP. A test puts the
/// tables before it that it needs, and the service's health check and backends after it.
pub const WEB: &str = r#"
[balancer]
source_v4 = "192.0.2.1"
source_v6 = "2001:db8::1"
mtu = 1500
decapsulate = ["192.0.2.1"]
[[port]]
name = "uplink"
device = "net_null0"
next_hop_mac = "02:00:00:00:00:01"
[[service]]
name = "web"
address = "203.0.113.10"
protocol = "tcp"
ports = "80"
"#;
