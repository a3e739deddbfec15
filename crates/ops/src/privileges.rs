//! What a program keeps of its rights once it runs.

use crate::cpus::place;
use hotloop_engine::{Control, Graph, Plan, Report, RunError};
use hotloop_privileges::{Capabilities, Thread, keep, threads};
use rustix::thread::set_no_new_privs;
use std::io;

/// What the control thread of every program keeps, where it was given them: a port that is closed puts
/// its interface in order, and one whose interface was deleted and made anew is opened again.
pub const CONTROL: Capabilities =
    Capabilities::NET_ADMIN.union(Capabilities::NET_RAW).union(Capabilities::IPC_LOCK);

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

fn keep_none() {
    keep(Capabilities::empty());
}

/// As [`Plan::run`], as far as it is about capabilities and signals: [`run`](crate::run).
pub(crate) fn run_begun<T>(
    plan: Plan<impl Graph>,
    kept: Capabilities,
    control: impl FnOnce(&Control<'_>) -> T,
) -> Result<Report, RunError> {
    Control::catch_signals();
    let plan = place(plan);
    hotloop_machine::warn(&plan.placement_now());
    plan.once_started(keep_none).run(|running| {
        keep(kept);
        match threads() {
            Ok(threads) => say(&threads),
            Err(error) => tracing::warn!("capabilities of this process's threads: {error}"),
        }
        control(running)
    })
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
}
