//! The privileges of the running program.

use crate::web_config::WEB;
use hotloop_tests::privileges::{CONTROL, DAC_READ_SEARCH, NET_RAW, keep_only};
use std::process::Command;

const ENGINE: &str = r#"
[engine]
deployment = "pipeline"
dispatchers = 1
workers = 2
"#;

const PROBED_BACKEND: &str = r#"
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
    // With a secret key, as operators should set one.
    let web = WEB.replace("[[port]]", "hash_key = \"00112233445566778899aabbccddeeff\"\n[[port]]");
    let config = format!("{ENGINE}{web}{PROBED_BACKEND}");
    std::fs::write(folder.path().join("lb.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    command.args(["run", "--config", "lb.toml", "--control", "lb.sock"]);
    command.current_dir(folder.path());
    let others = [("health", NET_RAW | DAC_READ_SEARCH), ("lb-read", DAC_READ_SEARCH)];
    keep_only(&mut command, CONTROL, &others);
}
