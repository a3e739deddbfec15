//! Reduces the capabilities of each thread of a program. Capabilities belong to threads, and a
//! thread can give up only its own: each does so once it no longer needs them.
//!
//! ```
//! use hotloop_privileges::{Capabilities, keep};
//!
//! std::thread::spawn(|| {
//!     keep(Capabilities::empty());
//!     // Neither this thread nor one that it starts can change an interface.
//! })
//! .join()
//! .unwrap();
//! ```
//!
//! # Guarantees
//!
//! - A thread that has called [`keep`] never regains a capability, nor does a thread that it
//!   starts.
//! - [`threads`] returns every thread of the process with its capabilities and those that it keeps.
//!   That reveals a driver's or library's thread, which never called [`keep`].
//!
//! # Limits
//!
//! Linux only. This crate depends on no other crate of the workspace: whatever starts a thread may use it.
#![forbid(unsafe_code)]

use rustix::process::Pid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, gettid,
    set_capabilities,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Capabilities (capabilities(7)), as a set.
pub type Capabilities = CapabilitySet;

/// The capabilities to keep of each thread that called [`keep`], by the number of the thread.
static KEPT: Mutex<BTreeMap<i32, Capabilities>> = Mutex::new(BTreeMap::new());

/// A thread of this process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// The capabilities that it has.
    pub has: Capabilities,
    /// Those that it keeps by [`keep`]; empty if it never called that.
    pub kept: Capabilities,
}

/// Gives up every capability of the calling thread that is not in `kept`, for ever. Threads
/// that it starts later have no more. Each thread of a program that is started ahead of its run calls this.
pub fn keep(kept: Capabilities) {
    if let Err(error) = try_keep(kept) {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        tracing::warn!("thread {name} keeps its capabilities: {error}");
    }
    let number = gettid().as_raw_pid();
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(number, kept);
}

fn try_keep(kept: Capabilities) -> io::Result<()> {
    let permitted = capabilities(None)?.permitted.intersection(kept);
    let inheritable = Capabilities::empty();
    set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })?;
    Ok(clear_ambient_capability_set()?)
}

/// Returns the threads of this process.
///
/// # Errors
/// The system's, where /proc can't be read.
pub fn threads() -> io::Result<Vec<Thread>> {
    let all_kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut threads = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|id| id.parse().ok()) else {
            continue;
        };
        // One that has ended meanwhile has none.
        let (Ok(name), Ok(sets)) = (
            std::fs::read_to_string(entry.path().join("comm")),
            capabilities(Pid::from_raw(number)),
        ) else {
            continue;
        };
        let kept = all_kept.get(&number).copied().unwrap_or(Capabilities::empty());
        threads.push(Thread { name: name.trim().to_owned(), has: sets.permitted, kept });
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gives_up_its_own_and_what_it_starts_has_no_more() {
        let before = capabilities(None).unwrap().permitted;
        let held = || capabilities(None).unwrap();
        let (kept, inherited) = std::thread::spawn(move || {
            keep(Capabilities::NET_RAW | Capabilities::SYS_TIME);
            keep(Capabilities::NET_RAW | Capabilities::NET_ADMIN);
            (held(), std::thread::spawn(held).join().unwrap())
        })
        .join()
        .unwrap();
        let expected = before.intersection(Capabilities::NET_RAW);
        assert_eq!((kept.permitted, kept.effective), (expected, expected));
        assert_eq!((inherited.permitted, inherited.inheritable), (expected, Capabilities::empty()));
        assert_eq!(capabilities(None).unwrap().permitted, before);
    }
}
