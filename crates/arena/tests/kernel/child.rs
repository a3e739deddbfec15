//! Tests that change their process irreversibly.

use std::env;
use std::process::Command;

const NAME: &str = "HOTLOOP_ARENA_CHILD";
const DONE: &str = "the child is done";

/// Runs `work` in a process of its own: this test binary again, which runs only the test `name` and
/// so calls this function again.
pub fn in_child(name: &str, work: impl FnOnce()) {
    if env::var_os(NAME).is_some_and(|child| child == name) {
        work();
        println!("{DONE}");
        return;
    }
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env(NAME, name);
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(DONE), "no test is called {name}");
}
