//! Ten thousand malformed frames over a wire: each is accounted for.

use std::fs;
use std::process::Command;

const CONFIG: &str = r#"
    [engine]
    workers = 1

    [balancer]
    source_v4 = "192.0.2.1"
    source_v6 = "2001:db8::1"
    mtu = 1500
    decapsulate = ["192.0.2.1", "2001:db8::1"]

    [[port]]
    name = "uplink"
    device = "DEVICE"
    next_hop_mac = "02:00:00:00:00:01"

    [[service]]
    name = "web"
    address = "203.0.113.10"
    protocol = "tcp"
    ports = "80"
    [[service.backend]]
    address = "10.0.0.1"

    [[service]]
    name = "web6"
    address = "2001:db8:1::10"
    protocol = "tcp"
    ports = "80"
    [[service.backend]]
    address = "2001:db8:b::1"
"#;

#[test]
fn malformed_frames_are_accounted_for_to_the_packet() {
    let folder = tempfile::tempdir().unwrap();
    hotloop_tests::besiege(|device, control| {
        let config = folder.path().join("lb.toml");
        fs::write(&config, CONFIG.replace("DEVICE", device)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
        command.args(["run", "--report", "json", "--config"]).arg(config);
        command.arg("--control").arg(control);
        command
    });
}
