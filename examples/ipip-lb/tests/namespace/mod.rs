//! A balancer in a network namespace: its configuration, its start, and its announced VIPs.
#![allow(dead_code, reason = "each test program uses a part of it")]

mod threads;

pub use crate::config::service;
pub use threads::{threads, while_stopped};

use hotloop_tests::{Program, tool};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The beginning of these tests' configurations.
pub const BALANCER: &str = r#"
[engine]
workers = 1
idle = "adaptive"
[balancer]
source_v4 = "192.0.2.1"
source_v6 = "2001:db8::1"
mtu = 1500
decapsulate = []
"#;

/// A section for announcing VIPs.
pub const ANNOUNCE: &str = r#"
[announce]
vips = "ready"
interface = "vips0"
"#;

/// A port without traffic.
pub const SILENT_PORT: &str = r#"
[[port]]
name = "uplink"
device = "net_null0,no-rx=1"
next_hop_mac = "02:00:00:00:00:01"
"#;

/// A DNS service at a VIP.
pub fn dns(name: &str, vip: &str, backends: &[&str]) -> String {
    service(name, &format!("{vip} udp 53"), "", backends)
}

/// The configuration, with this file for operators' changes.
pub fn with_operator_file(config: &str, file: &Path) -> String {
    let balancer = format!("[balancer]\noperator_file = {file:?}\n");
    config.replacen("[balancer]\n", &balancer, 1)
}

/// `ipip-lb run` in a folder, with this configuration.
pub fn command(folder: &Path, config: &str) -> Command {
    fs::write(folder.join("lb.toml"), config).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    run.current_dir(folder).env("XDG_RUNTIME_DIR", folder);
    run.args(["run", "--config", "lb.toml", "--report", "json", "--control", "lb.sock"]);
    run
}

/// Starts a balancer in a folder, with this configuration.
pub fn start(folder: &Path, config: &str) -> Program {
    Program::start(command(folder, config), &folder.join("lb.sock"))
}

/// The VIPs that are announced by routes.
pub fn routes() -> Vec<String> {
    let mut found = Vec::new();
    for version in ["-4", "-6"] {
        let arguments = [version, "route", "show", "dev", "vips0", "proto", "104"];
        let output = tool("ip").unwrap().args(arguments).stderr(Stdio::null()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        found.extend(text.lines().map(|line| line.split(' ').next().unwrap().to_owned()));
    }
    found
}
