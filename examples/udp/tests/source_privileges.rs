//! The program's privileges while it runs.

use hotloop_tests::privileges::{CONTROL, keep_only};
use std::process::Command;

#[test]
fn no_thread_keeps_more_than_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_udp-source"));
    command.args(["--port", "net_null0"]).env("XDG_RUNTIME_DIR", folder.path());
    keep_only(&mut command, CONTROL, &[]);
}
