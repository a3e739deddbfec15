//! The program itself, from one capture file to another, and the names in its output.

use crate::answers::{ZONE, query};
use hotloop::prelude::*;
use hotloop_capture::{read_frames, write_frames};
use serde_json::Value;
use std::fs;
use std::process::Command;

fn frames() -> Vec<Vec<u8>> {
    let question = query("www.example.com", 1);
    let clients = (1..=100).map(|host| format!("10.0.0.{host}:5000"));
    clients.map(|from| udp().from(from).to("192.0.2.53:53").payload(&question).build()).collect()
}

#[test]
fn the_queries_of_a_capture_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to, zone] = ["a.pcap", "b.pcap", "zone"].map(|name| folder.path().join(name));
    write_frames(&from, frames()).unwrap();
    fs::write(&zone, ZONE).unwrap();
    let port = format!("net_pcap0,rx_pcap={},tx_pcap={}", from.display(), to.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_dns-responder"));
    command.env("XDG_RUNTIME_DIR", folder.path()).args(["--report", "json", "--port", &port]);
    command.args(["--address", "192.0.2.53", "--zone"]).arg(&zone);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["balanced"], &report["pools_whole"]), (&true.into(), &true.into()));
    let answers = read_frames(&to).unwrap();
    assert_eq!(answers.len(), 100);
    assert!(answers.iter().all(|answer| answer.ends_with(&[192, 0, 2, 81])));
}

#[test]
fn the_schema_has_what_the_program_says() {
    let folder = tempfile::tempdir().unwrap();
    let zone = folder.path().join("zone");
    fs::write(&zone, ZONE).unwrap();
    let zone = zone.to_str().unwrap();
    let line = "--port net_null0 --address 192.0.2.53 --idle pause --zone";
    let arguments: Vec<_> = line.split_whitespace().chain([zone]).collect();
    hotloop_tests::schema::run_and_check(
        "dns-responder",
        env!("CARGO_BIN_EXE_dns-responder"),
        &arguments,
    );
}
