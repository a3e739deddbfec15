//! The privileges of the running program.

use hotloop_tests::privileges::{CONTROL, DAC_READ_SEARCH, NET_RAW, keep_only};
use std::process::Command;

const CONFIG: &str = r#"
[engine]
deployment = "pipeline"
dispatchers = 1
workers = 2
[balancer]
source_v4 = "192.0.2.1"
source_v6 = "2001:db8::1"
mtu = 1500
decapsulate = ["192.0.2.1"]
hash_key = "00112233445566778899aabbccddeeff"
[[port]]
name = "uplink"
device = "net_null0"
next_hop_mac = "02:00:00:00:00:01"
[[service]]
name = "web"
address = "203.0.113.10"
protocol = "tcp"
ports = "80"
  [service.health]
  kind = "icmp"
  interval_ms = 1000
  timeout_ms = 500
  rise = 1
  fall = 1
  [[service.backend]]
  address = "127.0.0.1"
"#;

#[test]
fn no_thread_keeps_more_than_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lb.toml"), CONFIG).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    command.args(["run", "--config", "lb.toml", "--control", "lb.sock"]);
    command.current_dir(folder.path());
    let others = [("health", NET_RAW | DAC_READ_SEARCH), ("lb-read", DAC_READ_SEARCH)];
    keep_only(&mut command, CONTROL, &others);
}
