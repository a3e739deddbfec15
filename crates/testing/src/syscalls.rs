//! Exact counts of single threads' system calls, without privilege.
//!
//! No interface for ordinary users counts a thread's system calls, so a test runs a second time in
//! a process of its own, and the first one traces it (`ptrace(2)`, which a parent may do to its
//! child). Threads mark what to count with [`Window`]s.
//!
//! ```
//! use hotloop_testing::syscalls::{Traced, Window, traced};
//!
//! // A test: `#[test]` belongs before it.
//! fn adding_makes_no_calls() {
//!     let windows = match traced("adding_makes_no_calls", || {
//!         let window = Window::begin("adding");
//!         assert_eq!(std::hint::black_box(1) + 1, 2);
//!         window.end();
//!     }) {
//!         Traced::InCopy => return,
//!         Traced::Unavailable(why) => return println!("skipped: {why}"),
//!         Traced::Windows(windows) => windows,
//!     };
//!     assert_eq!((windows.len(), windows[0].call_count), (1, 0));
//! }
//! # adding_makes_no_calls();
//! ```

mod copy;
mod tracer;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

/// Names the file that a traced copy writes its marks to.
const MARKS_VARIABLE: &str = "HOTLOOP_SYSCALL_MARKS";

/// Written by a copy once it waits to be traced.
const READY: &str = "ready";

/// The result of [`traced`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Traced {
    /// This process is the copy, and the body has run: the test must do nothing else.
    InCopy,
    /// The copy has succeeded. These are its windows, in the order in which they ended.
    Windows(Vec<WindowCalls>),
    /// The kernel doesn't allow tracing here, for this reason.
    Unavailable(String),
}

/// The system calls of one thread between [`Window::begin`] and [`Window::end`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WindowCalls {
    /// The window's name.
    pub name: String,
    /// The kernel's number of the thread.
    pub thread_id: i32,
    /// Number of calls that the thread made.
    pub call_count: u64,
}

/// Runs `body` in a copy of this test process, and counts the system calls in its windows.
///
/// `test_name` is the calling test's name as printed by the test harness, with its modules: the
/// copy is this program, running only that test. There, `traced` runs the body.
///
/// # Panics
/// If no test has this name, if the copy fails, or if a window was not ended.
pub fn traced(test_name: &str, body: impl FnOnce()) -> Traced {
    if let Some(marks) = marks() {
        copy::wait_for_tracer(marks);
        body();
        return Traced::InCopy;
    }
    tracer::trace_copy(test_name)
}

/// A stretch of a thread's life in which system calls are counted, if the process is traced. It
/// belongs to the thread that began it, and a thread has one at a time.
#[derive(Debug)]
pub struct Window {
    /// Made beforehand, so that ending the window makes a single system call.
    end_mark: Option<String>,
    /// Neither `Send` nor `Sync`.
    thread: std::marker::PhantomData<*const ()>,
}

impl Window {
    /// Begins counting for the calling thread.
    ///
    /// # Panics
    /// If the process is traced and `/proc` is not mounted.
    #[must_use = "a window is counted once it is ended"]
    pub fn begin(name: &str) -> Self {
        let end_mark = marks().map(|mut marks| {
            let thread_id = copy::thread_id();
            let begin_mark = format!("begin {thread_id} {name}\n");
            let end_mark = format!("end {thread_id}\n");
            marks.write_all(begin_mark.as_bytes()).expect("the marks can be written");
            end_mark
        });
        Self { end_mark, thread: std::marker::PhantomData }
    }

    /// Ends the window. The call that notifies the tracer is not counted.
    pub fn end(self) {
        if let (Some(end_mark), Some(mut marks)) = (&self.end_mark, marks()) {
            marks.write_all(end_mark.as_bytes()).expect("the marks can be written");
        }
    }
}

/// The file for a traced copy's marks; `None` in any other process.
fn marks() -> Option<&'static File> {
    static MARKS: OnceLock<Option<File>> = OnceLock::new();
    MARKS
        .get_or_init(|| {
            let path = std::env::var_os(MARKS_VARIABLE)?;
            let file = OpenOptions::new().append(true).open(Path::new(&path));
            Some(file.expect("the marks' file is there"))
        })
        .as_ref()
}
