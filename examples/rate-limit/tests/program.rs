//! The program itself, from one capture file to another, and the names in its output.

use hotloop::prelude::*;
use hotloop_capture::{read_frames, write_frames};
use serde_json::Value;
use std::process::Command;

#[test]
fn the_sources_of_a_capture_are_limited_in_both_deployments() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("a.pcap"), folder.path().join("b.pcap"));
    let polite = udp().from("10.0.0.2:1").build();
    let frames = [vec![udp().from("10.0.0.1:1").build(); 100], vec![polite.clone(); 10]].concat();
    write_frames(&from, &frames).unwrap();
    let port_a = format!("net_pcap0,rx_pcap={}", from.display());
    let port_b = format!("net_pcap1,tx_pcap={}", to.display());
    for deployment in [&["--run-to-completion", "1"][..], &["--pipeline", "1,1"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rate-limit"));
        command.env("XDG_RUNTIME_DIR", folder.path()).args(["--report", "json"]);
        command.args(["--port-a", &port_a, "--port-b", &port_b]).args(deployment);
        let output = command.args(["--packets-per-second", "1", "--burst", "20"]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{errors}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        // A token may be filled while the packets come.
        let over_rate = report["dropped"]["over_rate"].as_u64().unwrap();
        assert!((70..=80).contains(&over_rate), "{report}");
        assert_eq!((&report["balanced"], &report["pools_whole"]), (&true.into(), &true.into()));
        let sent = read_frames(&to).unwrap();
        assert_eq!(sent.len() as u64 + over_rate, 110);
        assert_eq!(sent.iter().filter(|frame| **frame == polite).count(), 10);
    }
}

#[test]
fn the_schema_has_what_the_program_says() {
    let line = "--port-a net_null0 --port-b net_null1 --packets-per-second 1 --idle pause";
    let arguments: Vec<_> = line.split_whitespace().collect();
    hotloop_tests::schema::run_and_check(
        "rate-limit",
        env!("CARGO_BIN_EXE_rate-limit"),
        &arguments,
    );
}
