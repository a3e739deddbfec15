//! Two balancers that announce their VIPs by BIRD, with connections that must not break, whatever
//! happens to one of them: `demo/cluster.sh`, which checks its own results. Without the section
//! `[cluster]`, a drain and the end of a balancer break some connections, so the check can fail.
//! `demo/sequences.sh`, with commands to single nodes. And `demo/rounds.sh`: events drawn by a seed
//! happen to the balancers, the backends, etcd and the routes.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use std::env;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Number of rounds: they take four to seven minutes. `IPIP_LB_ROUNDS` sets another number.
const ROUND_COUNT: &str = "50";

/// One test at a time: the checks depend on the speed of the machine.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn connections_go_on_when_a_backend_is_drained_and_a_balancer_killed_silent_withdrawn_or_stopped() {
    show("cluster.sh", &[]);
    show("cluster.sh", &["--apart"]);
}

/// The sequences need no failure of the network: operators' commands at single nodes, and then another
/// way for packets, or another program.
#[test]
fn connections_stay_whatever_is_done_to_single_nodes_before_they_move() {
    show("sequences.sh", &[]);
}

/// The same rounds each time, unless `IPIP_LB_SEED` is set: `cargo xtask demo --cluster` draws
/// others.
#[test]
fn no_byte_of_a_thousand_uploads_is_lost_in_rounds_that_a_seed_draws() {
    let of = |name, otherwise: &str| env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let (rounds, seed) = (of("IPIP_LB_ROUNDS", ROUND_COUNT), of("IPIP_LB_SEED", "1"));
    show("rounds.sh", &["--rounds", &rounds, "--seed", &seed]);
}

/// Runs a script, which ends with an error if a check fails.
fn show(script: &str, arguments: &[&str]) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let script = format!("{}/../../demo/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(script);
    let output = command.arg(env!("CARGO_BIN_EXE_ipip-lb")).args(arguments).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) {
        return println!("skipped: {}", errors.trim());
    }
    assert!(output.status.success(), "{shown}{errors}");
    println!("{shown}");
}
