//! One engine at a time, with a time limit.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time limit for a test: far longer than any takes, so that only a hanging test is ended.
const HANG_SECONDS: u64 = 300;

/// Runs `body` while no other test of this process runs one. A hanging test must fail: a body that
/// takes longer than five minutes ends the process.
///
/// # Panics
/// If `body` panics.
#[allow(clippy::print_stderr, reason = "the last words of a test that hangs")]
pub fn alone<T>(body: impl FnOnce() -> T) -> T {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (done, watch) = channel::<()>();
    let watching = std::thread::spawn(move || {
        if watch.recv_timeout(Duration::from_secs(HANG_SECONDS)) == Err(RecvTimeoutError::Timeout) {
            eprintln!("a test hangs");
            std::process::abort();
        }
    });
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    drop(done);
    watching.join().expect("the watch does not panic");
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
