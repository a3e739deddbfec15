//! A signal that comes before the program runs.

use hotloop_tests::Program;
use std::process::Command;

#[test]
fn a_signal_that_comes_before_it_runs_ends_it_with_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nat44"));
    command.env("XDG_RUNTIME_DIR", folder.path()).args([
        "--lan",
        "net_null0",
        "--wan",
        "net_null1",
    ]);
    command.args(["--lan-address", "10.0.0.1", "--wan-address", "203.0.113.1"]);
    command.args(["--next-hop-mac", "02:00:00:00:00:01", "--report", "json"]);
    let socket = folder.path().join("hotloop/nat44.sock");
    // EAL starts after that.
    let (report, errors) = Program::begin(command, |_| socket.exists()).end();
    assert_eq!(
        (&report["balanced"], &report["pools_whole"]),
        (&true.into(), &true.into()),
        "{errors}"
    );
}
