//! Places cores on CPUs that no other program of the machine uses.
//!
//! A program that takes a CPU locks a file for it (flock(2)) in the folder of the control sockets.
//! The kernel unlocks the file when the process ends, however that happens.

use crate::path::socket_path;
use hotloop_engine::{Graph, Placement, Plan, Topology};
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, open};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The CPUs that this process has taken, until it ends. A later run of the process may use them
/// again.
static TAKEN: Mutex<BTreeMap<usize, OwnedFd>> = Mutex::new(BTreeMap::new());

/// Places a plan's cores on CPUs that no other program has taken, and takes them until this process
/// ends. The CPUs are those that [`Placement::automatic`] chooses among the free ones. If too few
/// are free, it chooses among all of them, and the cores yield when they are idle. The placement's
/// notes describe the result.
///
/// Programs see each other's CPUs if their control sockets have the same default folder (see
/// [`socket_path`](crate::socket_path)). That is so for all services of a machine, and for all
/// programs of one login.
///
/// The CPUs of a placed plan are taken too, so that other programs choose different ones; the plan
/// stays as it is. [`run`](crate::run) places a plan that is not placed.
#[must_use]
pub fn place<G: Graph>(plan: Plan<G>) -> Plan<G> {
    let claims = Claims::open();
    if let Some(placement) = plan.placement_asked() {
        let cpus: Vec<_> = placement.seats().iter().filter_map(|seat| seat.cpu).collect();
        for cpu in cpus {
            claims.take(cpu);
        }
        return plan;
    }
    let core_count = plan.deployment().core_count();
    let topology = Topology::read(Path::new("/"));
    let placement = choose(&topology, core_count, &mut |cpu| claims.take(cpu));
    plan.placement(placement).expect("a placement has as many seats as it was asked for")
}

/// Gives back the CPUs that this process has taken, for another process that replaces it.
pub fn give_back_cpus() {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Chooses CPUs for `core_count` cores among those that `take` gets.
fn choose(
    topology: &Topology,
    core_count: usize,
    take: &mut dyn FnMut(usize) -> bool,
) -> Placement {
    let mut free = topology.clone();
    loop {
        let placement = Placement::automatic(&free, core_count, None);
        let wanted: Vec<_> = placement.seats().iter().filter_map(|seat| seat.cpu).collect();
        let missed: Vec<_> = wanted.into_iter().filter(|&cpu| !take(cpu)).collect();
        let other_count = topology.cpus.len() - free.cpus.len();
        match (missed.is_empty(), other_count) {
            (true, 0) => return placement,
            (true, _) => {
                return placement.with_note(format!("CPUs left to other programs: {other_count}"));
            }
            (false, _) => free.cpus.retain(|cpu| !missed.contains(&cpu.id)),
        }
        if free.cpus.is_empty() {
            return Placement::automatic(topology, core_count, None).beside_others().with_note(
                "other programs have taken every CPU: cores share theirs, at a fraction of the speed",
            );
        }
    }
}

/// The folder of lock files, and the locks held.
struct Claims {
    folder: PathBuf,
}

impl Claims {
    fn open() -> Self {
        let path = socket_path("cpu");
        let folder = path.parent().unwrap_or(Path::new("/run"));
        // Without the folder, no file can be made, and all CPUs count as free.
        let _ = DirBuilder::new().mode(0o700).create(folder);
        Self { folder: folder.to_owned() }
    }

    /// Takes a CPU. Returns false if another program has it. If the folder does not support locks,
    /// no CPU can be taken.
    fn take(&self, cpu: usize) -> bool {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.contains_key(&cpu) {
            return true;
        }
        match lock(&self.folder.join(format!("cpu{cpu}.lock"))) {
            Ok(file) => {
                taken.insert(cpu, file);
                true
            }
            Err(Errno::WOULDBLOCK) => false,
            Err(error) => {
                tracing::debug!("CPU {cpu}: no lock in {}: {error}", self.folder.display());
                true
            }
        }
    }
}

/// Opens the file, created if missing, and locks it. Every user of the folder can lock it: nothing
/// is ever written to it.
fn lock(path: &Path) -> Result<OwnedFd, Errno> {
    let mode = Mode::from_raw_mode(0o644);
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, mode)?;
    // Undoes the umask; if another user owns the file, it stays as it is.
    let _ = fchmod(&file, mode);
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_engine::Cpu;

    /// Returns the CPUs for `core_count` cores, whether they are shared, and the notes, given the
    /// machine's CPUs and those that others have taken.
    fn chosen(
        cpu_count: usize,
        core_count: usize,
        others: &[usize],
    ) -> (Vec<usize>, bool, Vec<String>) {
        let cpu = |id| Cpu { id, node: None, sibling_index: 0 };
        let topology = Topology { cpus: (0..cpu_count).map(cpu).collect() };
        let placement = choose(&topology, core_count, &mut |cpu| !others.contains(&cpu));
        let cpus = placement.seats().iter().filter_map(|seat| seat.cpu).collect();
        let is_shared = placement.seats().iter().all(|seat| seat.is_shared);
        (cpus, is_shared, placement.notes().to_vec())
    }

    #[test]
    fn cores_go_where_no_other_program_has_its_own() {
        assert_eq!(chosen(4, 2, &[]), (vec![1, 2], false, vec![]));
        let left = |count: usize| format!("CPUs left to other programs: {count}");
        assert_eq!(chosen(4, 1, &[1]), (vec![2], false, vec![left(1)]));
        assert_eq!(chosen(4, 2, &[2]), (vec![1, 3], false, vec![left(1)]));
        let no_control = "no CPU is left to control (cores: 1, CPUs: 1)".to_owned();
        assert_eq!(chosen(2, 1, &[1]), (vec![0], false, vec![no_control, left(1)]));
    }

    #[test]
    fn where_others_have_all_cores_share_and_yield() {
        let (cpus, is_shared, notes) = chosen(4, 2, &[0, 1, 2, 3]);
        assert_eq!((cpus, is_shared), (vec![1, 2], true));
        assert!(notes[0].contains("taken every CPU"), "{notes:?}");
    }

    #[test]
    fn a_locked_file_is_anothers_until_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cpu7.lock");
        let held = lock(&path).unwrap();
        assert_eq!(lock(&path).unwrap_err(), Errno::WOULDBLOCK);
        drop(held);
        lock(&path).unwrap();
        let absent = folder.path().join("absent/cpu7.lock");
        assert_eq!(lock(&absent).unwrap_err(), Errno::NOENT);
    }
}
