//! The side of the tracer: starts the copy and counts its threads' calls.

use super::{MARKS_VARIABLE, READY, Traced, WindowCalls};
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// A folder that is removed with its content.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(format!("hotloop-syscalls-{process}-{number}"));
        fs::create_dir(&path).expect("a folder can be made for the tracer's marks");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing depends on this: a folder that stays is litter.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the test with this name in a copy of this process and counts the calls in its windows.
pub fn trace_copy(test_name: &str) -> Traced {
    let folder = Folder::new();
    let (marks_path, output_path) = (folder.0.join("marks"), folder.0.join("output"));
    File::create(&marks_path).expect("the marks' file can be made");
    let mut copy = start(test_name, &marks_path, &output_path);
    let root = Pid::from_raw(copy.id().cast_signed());
    if !wait_until_ready(&mut copy, &marks_path) {
        let output = fs::read_to_string(&output_path).unwrap_or_default();
        panic!("no test named {test_name} ran under the tracer:\n{output}");
    }
    if let Err(errno) = seize_all(root) {
        // The copy is our own child, and waits for us: we must end it.
        let _ = copy.kill();
        let _ = copy.wait();
        return Traced::Unavailable(format!("ptrace is not allowed here: {errno}"));
    }
    let go = copy.stdin.take().map(|mut stdin| stdin.write_all(b"go\n"));
    go.expect("the copy's input is a pipe").expect("the copy waits for its input");

    let mut counting = Counting::new(&marks_path);
    let ended_well = counting.run(root);
    if !ended_well {
        let output = fs::read_to_string(&output_path).unwrap_or_default();
        panic!("test {test_name} failed under the tracer:\n{output}");
    }
    assert!(counting.open.is_empty(), "windows never ended: {:?}", counting.open);
    Traced::Windows(counting.windows)
}

fn start(test_name: &str, marks_path: &Path, output_path: &Path) -> Child {
    let output = File::create(output_path).expect("the output's file can be made");
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.args([test_name, "--exact", "--nocapture"]).env(MARKS_VARIABLE, marks_path);
    command.stdin(Stdio::piped()).stderr(output.try_clone().expect("a file has many handles"));
    command.stdout(output).spawn().expect("this program can be started again")
}

/// Waits until the copy is ready; returns false if it ended instead.
fn wait_until_ready(copy: &mut Child, marks_path: &Path) -> bool {
    loop {
        if fs::read_to_string(marks_path).is_ok_and(|marks| marks.starts_with(READY)) {
            return true;
        }
        if !matches!(copy.try_wait(), Ok(None)) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Traces all existing threads; the kernel traces those that begin later.
fn seize_all(root: Pid) -> Result<(), Errno> {
    let options =
        Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    let mut seized = HashSet::new();
    loop {
        let threads = fs::read_dir(format!("/proc/{root}/task")).map_err(|_| Errno::ESRCH)?;
        let ids = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let new: Vec<i32> = ids.filter(|id| !seized.contains(id)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for id in new {
            ptrace::seize(Pid::from_raw(id), options)?;
            ptrace::interrupt(Pid::from_raw(id))?;
            seized.insert(id);
        }
    }
}

/// The calls of every thread, and the windows between its marks.
struct Counting {
    marks: File,
    /// The beginning of a mark that has not been read to its end yet.
    partial: String,
    entered_counts: HashMap<i32, u64>,
    /// By thread, its open window and the number of calls it had entered when that began.
    open: HashMap<i32, (String, u64)>,
    windows: Vec<WindowCalls>,
}

impl Counting {
    fn new(marks_path: &Path) -> Self {
        let marks = File::open(marks_path).expect("the marks' file is there");
        let (entered_counts, open) = (HashMap::new(), HashMap::new());
        Self { marks, partial: String::new(), entered_counts, open, windows: Vec::new() }
    }

    /// Lets the copy run to its end. Returns whether it succeeded.
    fn run(&mut self, root: Pid) -> bool {
        // Only children that this thread started and traces: other tests have children of their
        // own.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            let status = waitpid(None, Some(flags)).expect("the copy is there until it ended");
            let (thread, signal) = match status {
                WaitStatus::Exited(pid, code) if pid == root => return code == 0,
                WaitStatus::Signaled(pid, ..) if pid == root => return false,
                WaitStatus::PtraceSyscall(thread) => {
                    self.count(thread);
                    (thread, None)
                }
                WaitStatus::PtraceEvent(thread, ..) => (thread, None),
                WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
                _ => continue,
            };
            resume(thread, signal);
        }
    }

    /// Counts the call that a thread enters, and reads the marks. A thread's mark is read when it
    /// leaves the call that wrote it, or before: so the mark falls between that call and the next.
    fn count(&mut self, thread: Pid) {
        let entering = match ptrace::syscall_info(thread) {
            Ok(info) => info.op == libc::PTRACE_SYSCALL_INFO_ENTRY,
            Err(_) => false,
        };
        if entering {
            *self.entered_counts.entry(thread.as_raw()).or_default() += 1;
        }
        self.read_marks();
    }

    fn read_marks(&mut self) {
        self.marks.read_to_string(&mut self.partial).expect("the marks can be read");
        while let Some(end) = self.partial.find('\n') {
            let mark: String = self.partial.drain(..=end).collect();
            self.apply(mark.trim_end());
        }
    }

    fn apply(&mut self, mark: &str) {
        let mut words = mark.splitn(3, ' ');
        let (kind, thread_id) = (words.next(), words.next().and_then(|id| id.parse().ok()));
        let Some(thread_id) = thread_id else { return };
        let entered_count = self.entered_counts.get(&thread_id).copied().unwrap_or_default();
        match kind {
            Some("begin") => {
                let name = words.next().unwrap_or_default().to_owned();
                let outer = self.open.insert(thread_id, (name, entered_count));
                assert!(outer.is_none(), "a window within window {outer:?}");
            }
            Some("end") => {
                let (name, before) = self.open.remove(&thread_id).expect("only Window ends one");
                // Minus the call that wrote the mark.
                let call_count = entered_count - before - 1;
                self.windows.push(WindowCalls { name, thread_id, call_count });
            }
            _ => {}
        }
    }
}

fn resume(thread: Pid, signal: Option<Signal>) {
    match ptrace::syscall(thread, signal) {
        // ESRCH: the thread was killed meanwhile, and its end will be reported.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(errno) => panic!("thread {thread} cannot go on: {errno}"),
    }
}
