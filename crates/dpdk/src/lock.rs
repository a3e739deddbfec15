//! The single lock of DPDK's control plane, and the data under it.
//!
//! Hot-plug, configuration, start, stop and close touch tables of ethdev that have no lock of their
//! own: calls from several threads crash. All of these calls take a [`Control`], which exists once.
//! The packet path doesn't.
//!
//! Lock order: control, a port's state, parked pools, the pool being checked, the log.

use crate::{Error, log, stack};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

static CONTROL: Mutex<Registry> = Mutex::new(Registry {
    owned: BTreeSet::new(),
    announced: BTreeMap::new(),
    tx_descriptors: BTreeMap::new(),
});

/// The process's record of its devices.
pub(crate) struct Registry {
    /// Names of the devices that a port owns. DPDK's hot-plug "succeeds" for a name that is in use.
    pub owned: BTreeSet<String>,
    /// Strings, by name, of the virtual devices among EAL's arguments.
    pub announced: BTreeMap<String, String>,
    /// TX descriptors by device, which may hold packets of any port's pool.
    pub tx_descriptors: BTreeMap<String, usize>,
}

/// Proof that the control lock is held, by a thread with room on its stack for calls into drivers.
pub(crate) struct Control(MutexGuard<'static, Registry>);

impl Control {
    /// # Errors
    /// [`Error::Stack`].
    pub(crate) fn lock() -> Result<Self, Error> {
        stack::check()?;
        Ok(Self(lock(&CONTROL)))
    }
}

impl Deref for Control {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.0
    }
}

impl DerefMut for Control {
    fn deref_mut(&mut self) -> &mut Registry {
        &mut self.0
    }
}

/// Locks whether or not a thread panicked while it held the lock: the data under these locks is
/// valid between any two statements.
///
/// # Panics
/// Inside an event of DPDK's log: the thread may have the lock already, and would wait for itself.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    assert!(
        !log::is_sending(),
        "hotloop was called from an event of DPDK's log: {}",
        log::NO_CALLS
    );
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
