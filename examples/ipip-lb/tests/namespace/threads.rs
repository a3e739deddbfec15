//! Threads of a program. Each can be stopped separately.

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::fs;

/// A thread that stays stopped until this is dropped.
struct Stopped(Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None);
    }
}

/// Stops one thread of a process while `work` runs.
pub fn while_stopped(thread: Pid, work: impl FnOnce()) -> nix::Result<()> {
    ptrace::seize(thread, ptrace::Options::empty())?;
    ptrace::interrupt(thread)?;
    waitpid(thread, Some(WaitPidFlag::__WALL))?;
    let _stopped = Stopped(thread);
    work();
    Ok(())
}

/// The threads of a process, with their names.
pub fn threads(process: Pid) -> Vec<(Pid, String)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let named = tasks.map(|task| {
        let path = task.unwrap().path();
        let id = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let name = fs::read_to_string(path.join("comm")).unwrap();
        (Pid::from_raw(id), name.trim().to_owned())
    });
    named.collect()
}
