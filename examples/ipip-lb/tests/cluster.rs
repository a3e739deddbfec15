//! Two balancers that announce their VIPs by BIRD, and connections of which none is broken by what happens
//! to one of them: `demo/cluster.sh`, which checks whatever it shows. Without the section `[cluster]`, a drain and
//! the end of a balancer break some, so the check can fail. And what is drawn by a seed happens to them, to the backends,
//! to etcd and to the routes: `demo/rounds.sh`.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use std::env;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// How many rounds are played: they take three to five minutes. `IPIP_LB_ROUNDS` says how many else.
const ROUND_COUNT: &str = "50";

/// One after the other: how long a machine takes is part of what is checked.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn connections_go_on_when_a_backend_is_drained_and_a_balancer_killed_silent_withdrawn_or_stopped() {
    show("cluster.sh", &[]);
    show("cluster.sh", &["--apart"]);
}

/// The same rounds each time, unless `IPIP_LB_SEED` says which: `cargo xtask demo --cluster` draws others.
#[test]
fn no_byte_of_a_thousand_uploads_is_lost_in_rounds_that_a_seed_draws() {
    let of = |name, otherwise: &str| env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let (rounds, seed) = (of("IPIP_LB_ROUNDS", ROUND_COUNT), of("IPIP_LB_SEED", "1"));
    show("rounds.sh", &["--rounds", &rounds, "--seed", &seed]);
}

/// Runs a script, which ends with an error where something is not as it says.
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
