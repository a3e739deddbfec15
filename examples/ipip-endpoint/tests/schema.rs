//! The names in the program's output.

use hotloop_tests::schema::run_and_check;
use rustix::process::geteuid;
use std::path::Path;

#[test]
fn the_schema_has_what_the_program_says() {
    if !geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        return println!("skipped: no TAP interface can be made here");
    }
    let tap = format!("hlsay{}", std::process::id() % 100_000);
    let line = "--address 10.0.0.1 --balancer 192.0.2.1 --port net_null0 --idle pause --tap";
    let arguments: Vec<_> = line.split_whitespace().chain([tap.as_str()]).collect();
    run_and_check("ipip-endpoint", env!("CARGO_BIN_EXE_ipip-endpoint"), &arguments);
}
