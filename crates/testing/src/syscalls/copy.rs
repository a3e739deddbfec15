//! The side of the traced copy.

use super::READY;
use std::fs::File;
use std::io::Write;

/// Notifies the tracer that this process is ready, and waits until it is traced.
pub fn wait_for_tracer(mut marks: &File) {
    writeln!(marks, "{READY}").expect("the marks can be written");
    let mut go = String::new();
    std::io::stdin().read_line(&mut go).expect("the tracer says when to go");
}

/// The kernel's number of the calling thread.
pub fn thread_id() -> i32 {
    // The link is "PID/task/TID".
    let link = std::fs::read_link("/proc/thread-self").expect("/proc is mounted");
    let id = link.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
    id.expect("a thread's link ends in its number")
}
