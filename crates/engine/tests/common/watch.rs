//! A hang must fail, not wait for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Runs `body`, and ends the process if it takes longer than a minute: a hang must fail.
#[allow(clippy::print_stderr, reason = "the last words of a test that hangs")]
pub fn watched<T>(body: impl FnOnce() -> T) -> T {
    let done = Arc::new(AtomicBool::new(false));
    let watch = std::thread::spawn({
        let done = Arc::clone(&done);
        move || {
            let end = Instant::now() + Duration::from_secs(60);
            while !done.load(SeqCst) {
                if Instant::now() > end {
                    eprintln!("the engine hangs");
                    std::process::abort();
                }
                std::thread::park_timeout(Duration::from_secs(1));
            }
        }
    });
    let stop = StopWatch { done, watch: Some(watch) };
    let result = body();
    drop(stop);
    result
}

struct StopWatch {
    done: Arc<AtomicBool>,
    watch: Option<std::thread::JoinHandle<()>>,
}

impl Drop for StopWatch {
    fn drop(&mut self) {
        self.done.store(true, SeqCst);
        let watch = self.watch.take().expect("taken once");
        watch.thread().unpark();
        watch.join().expect("the watch does not panic");
    }
}
