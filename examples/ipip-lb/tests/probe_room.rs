//! The program's message about its limit of open files, which bounds its probes.

use hotloop_tests::tool;
use rustix::process::{Resource, getrlimit};
use std::fs;

const BACKENDS: u64 = 200;

/// The program's messages with this `ulimit`, one of them about its health checks.
fn report(ulimit: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let backend = |number| format!("[[service.backend]]\naddress = \"127.3.0.{number}\"\n");
    let config = r#"
        [engine]
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
        [service.health]
        kind = "tcp"
    "#;
    let config = config.to_owned() + &(1..=BACKENDS).map(backend).collect::<String>();
    fs::write(folder.path().join("lb.toml"), config).unwrap();
    let run = "exec \"$0\" run --config lb.toml --control lb.sock --duration 0.1";
    let output = tool("sh")
        .unwrap()
        .args(["-c", &format!("{ulimit}; {run}"), env!("CARGO_BIN_EXE_ipip-lb")])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let report = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report}");
    report
}

#[test]
fn the_program_says_how_many_files_it_may_open() {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let report = report("ulimit -Sn 600");
    let expected = format!(
        "health: backends probed: {BACKENDS}, each over one connection at most; open files allowed: \
         {hard}\n"
    );
    assert!(report.contains(&expected), "{report}");
}

#[test]
fn a_limit_that_is_too_low_is_said_with_what_to_do() {
    let report = report("ulimit -n 600");
    for part in ["open files allowed: 600, which is too few", "hard limit to 712", "LimitNOFILE="] {
        assert!(report.contains(part), "{part}: {report}");
    }
}
