//! What a program keeps of its rights once it runs. Capabilities belong to threads, and a thread can
//! only give up its own: each does, when it needs them no longer.

use crate::cpus::place;
use crate::doctor;
use hotloop_engine::{Control, Graph, Plan, Report, RunError};
use rustix::process::Pid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, gettid,
    set_capabilities, set_no_new_privs,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Capabilities (capabilities(7)), as a set.
pub type Capabilities = CapabilitySet;

/// What the control thread of every program keeps, where it was given them: a port that is closed puts
/// its interface in order, and one whose interface was deleted and made anew is opened again.
pub const CONTROL: Capabilities =
    Capabilities::NET_ADMIN.union(Capabilities::NET_RAW).union(Capabilities::IPC_LOCK);

/// What each thread was to keep, by its number, of those that said so by [`keep`].
static KEPT: Mutex<BTreeMap<i32, Capabilities>> = Mutex::new(BTreeMap::new());

/// A thread of this process.
struct Thread {
    name: String,
    has: Capabilities,
    /// What it was to keep.
    kept: Capabilities,
}

/// The first thing that a program does, ahead of its first thread: no program that it starts gets more
/// rights than it has, and EAL's own threads get none.
///
/// # Errors
/// The kernel's, where it knows no such thing.
pub(crate) fn begin() -> io::Result<()> {
    #[cfg(feature = "dpdk")]
    hotloop_dpdk::Eal::visit_threads(keep_none);
    Ok(set_no_new_privs(true)?)
}

/// Gives up every capability of the calling thread that is not in `kept`, for ever. What a thread
/// starts later has no more. Each thread of a program that is started ahead of [`run`](crate::run) calls it.
pub fn keep(kept: Capabilities) {
    if let Err(error) = try_keep(kept) {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        tracing::warn!("thread {name} keeps its capabilities: {error}");
    }
    let number = gettid().as_raw_pid();
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(number, kept);
}

fn keep_none() {
    keep(Capabilities::empty());
}

fn try_keep(kept: Capabilities) -> io::Result<()> {
    let permitted = capabilities(None)?.permitted.intersection(kept);
    let inheritable = Capabilities::empty();
    set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })?;
    Ok(clear_ambient_capability_set()?)
}

/// As [`Plan::run`], as far as it is about capabilities and signals: [`run`](crate::run).
pub(crate) fn run_begun<T>(
    plan: Plan<impl Graph>,
    kept: Capabilities,
    control: impl FnOnce(&Control<'_>) -> T,
) -> Result<Report, RunError> {
    Control::catch_signals();
    let plan = place(plan);
    doctor::warn(&plan.placement_now());
    plan.once_started(keep_none).run(|running| {
        keep(kept);
        match threads() {
            Ok(threads) => say(&threads),
            Err(error) => tracing::warn!("capabilities of this process's threads: {error}"),
        }
        control(running)
    })
}

/// The threads that there are.
fn threads() -> io::Result<Vec<Thread>> {
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

fn say(threads: &[Thread]) {
    let left: Capabilities = threads.iter().map(|thread| thread.has).collect();
    tracing::info!("capabilities kept: {}; no new privileges", names(left));
    for Thread { name, has, kept } in threads {
        let more = has.difference(*kept);
        if !more.is_empty() {
            tracing::warn!(
                "thread {name}, which a driver or library started, keeps {}",
                names(more)
            );
        }
    }
}

fn names(set: Capabilities) -> String {
    let names: Vec<_> = set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_named_as_the_kernel_does() {
        assert_eq!(names(CONTROL), "CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK");
        assert_eq!(names(Capabilities::empty()), "none");
    }

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
