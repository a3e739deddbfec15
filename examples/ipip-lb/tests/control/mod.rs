//! A running balancer with queries and changes: `ipip-lb run` on virtual devices, `ipip-lb ctl`,
//! and signals.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

mod blocks;
mod busy;
mod captures;
mod changes;
mod draining;
mod metrics;
mod nodes;
mod program;
mod renewal;
mod tells;

use program::{Program, TCP_COUNT, UDP_COUNT, config};
use std::fs;
use std::process::Command;

#[test]
fn without_a_program_there_is_no_answer_and_a_socket_is_not_taken_over() {
    let program = Program::start();
    let folder = program.folder.path();
    let run = |args: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_ipip-lb")).current_dir(folder).args(args).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, errors) = run(&["ctl", "--control", "none.sock", "status"]);
    assert!(code == Some(2) && errors.contains("none.sock"), "{errors}");
    // Another program can't use a socket that is in use.
    let second = config().replace(
        "net_pcap0,rx_pcap=clients.pcap,tx_pcap=first.pcap,tx_pcap=second.pcap",
        "net_null1,no-rx=1",
    );
    fs::write(folder.join("second.toml"), second).unwrap();
    let (code, errors) =
        run(&["run", "--config", "second.toml", "--duration", "5", "--control", "lb.sock"]);
    assert!(code == Some(2) && errors.contains("lb.sock"), "{errors}");
    assert_eq!(program.json(&["status"])["reloads"], 0);
    program.end("-INT");
}

#[test]
fn signals_end_it_with_a_whole_ledger() {
    for signal in ["-INT", "-TERM"] {
        let report = Program::start().end(signal);
        assert_eq!(report["received"], 64);
        assert_eq!(report["sent"], TCP_COUNT + 10 + UDP_COUNT);
        assert_eq!(report["balancer"]["admitted"], TCP_COUNT + UDP_COUNT);
    }
}
