//! Reduces a program's rights to those that it needs while it runs.

use crate::cpus::place;
use hotloop_engine::{Control, Graph, Plan, Report, RunError};
use hotloop_privileges::{Capabilities, Thread, keep, threads};
use rustix::thread::set_no_new_privs;
use std::io;

/// The capabilities that the control thread of every program keeps, if it was given them. It needs
/// them to put the interface of a closed port in order, and to reopen a port after its interface
/// was deleted and made anew.
pub const CONTROL: Capabilities =
    Capabilities::NET_ADMIN.union(Capabilities::NET_RAW).union(Capabilities::IPC_LOCK);

/// Called before the program starts its first thread: no program that it starts gets more rights
/// than it has, and EAL's own threads get none.
///
/// # Errors
/// The kernel does not support it.
pub(crate) fn begin() -> io::Result<()> {
    #[cfg(feature = "dpdk")]
    hotloop_dpdk::Eal::visit_threads(keep_none);
    Ok(set_no_new_privs(true)?)
}

fn keep_none() {
    keep(Capabilities::empty());
}

/// The part of [`run`](crate::run) about capabilities and signals, around [`Plan::run`].
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
