//! The program's privileges while it runs.

use hotloop_tests::privileges::{CONTROL, keep_only};
use std::process::Command;

#[test]
#[allow(clippy::print_stdout, reason = "a test says what it skips")]
fn no_thread_keeps_more_than_it_needs() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: a TAP interface takes root, or CAP_NET_ADMIN");
    }
    let folder = tempfile::tempdir().unwrap();
    let tap = format!("hlp{}", std::process::id());
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-endpoint"));
    command.args(["--port", "net_null0", "--tap", &tap]);
    command.args(["--address", "10.0.0.1", "--balancer", "192.0.2.1"]);
    command.env("XDG_RUNTIME_DIR", folder.path());
    keep_only(&mut command, CONTROL, &[]);
}
