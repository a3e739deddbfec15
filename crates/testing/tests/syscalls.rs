//! System calls, counted by thread.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use hotloop_testing::syscalls::{Traced, Window, WindowCalls, traced};
use std::hint::black_box;
use std::panic::catch_unwind;

/// The windows of the copy; `None` in the copy, and if tracing is impossible.
fn windows(test_name: &str, body: impl FnOnce()) -> Option<Vec<WindowCalls>> {
    match traced(test_name, body) {
        Traced::InCopy => None,
        Traced::Windows(windows) => Some(windows),
        Traced::Unavailable(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

/// Makes exactly `count` system calls.
fn call(count: usize) {
    for _ in 0..count {
        // One `readlink` each; the error avoids any other call.
        let _ = black_box(std::fs::read_link("/nonexistent"));
    }
}

#[test]
fn each_threads_calls_are_counted_apart() {
    let Some(mut windows) = windows("each_threads_calls_are_counted_apart", || {
        let start = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for (name, count) in [("none", 0), ("seven", 7), ("thousand", 1000)] {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let window = Window::begin(name);
                    call(count);
                    window.end();
                    call(3);
                });
            }
        });
    }) else {
        return;
    };
    windows.sort_by_key(|window| window.call_count);
    let counts: Vec<_> = windows.iter().map(|w| (w.name.as_str(), w.call_count)).collect();
    assert_eq!(counts, [("none", 0), ("seven", 7), ("thousand", 1000)]);
    assert_ne!(windows[0].thread_id, windows[1].thread_id);
}

#[test]
fn work_in_memory_makes_no_calls() {
    let counted = windows("work_in_memory_makes_no_calls", || {
        let mut numbers = vec![0_u64; 1024];
        for name in ["first", "second window"] {
            let window = Window::begin(name);
            for round in 0..100 {
                black_box(&mut numbers).iter_mut().for_each(|number| *number += round);
            }
            window.end();
        }
    });
    let Some(windows) = counted else { return };
    let names: Vec<_> = windows.iter().map(|w| (w.name.as_str(), w.call_count)).collect();
    assert_eq!(names, [("first", 0), ("second window", 0)]);
}

#[test]
fn a_copy_that_fails_fails_the_test() {
    let result = catch_unwind(|| {
        traced("a_copy_that_fails_fails_the_test", || {
            // The copy's own process must fail, whatever this test makes of that here.
            eprintln!("on purpose");
            std::process::exit(3);
        })
    });
    let said = match &result {
        Ok(Traced::Unavailable(why)) => return println!("skipped: {why}"),
        Ok(other) => panic!("{other:?}"),
        Err(panic) => panic.downcast_ref::<String>().expect("a message"),
    };
    assert!(said.contains("failed under the tracer") && said.contains("on purpose"), "{said}");
}

#[test]
#[should_panic = "no test named nowhere::at_all"]
fn a_wrong_name_is_reported() {
    traced("nowhere::at_all", || {});
}

#[test]
fn outside_a_copy_windows_do_nothing() {
    Window::begin("ignored").end();
}
