//! Watches for SIGHUP, which asks a program to read its configuration again.

use signal_hook::SigId;
use signal_hook::consts::SIGHUP;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Set if SIGHUP came before anything watched for it.
static EARLY: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Watches for SIGHUP, which no longer ends the process from then on, even after this is dropped.
///
/// ```
/// use hotloop_ops::Hangup;
///
/// # fn main() -> std::io::Result<()> {
/// let hangup = Hangup::watch()?;
/// // In the control thread's loop:
/// if hangup.came() {
///     println!("reading the configuration again");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Hangup {
    flag: Arc<AtomicBool>,
    id: SigId,
}

impl Hangup {
    /// Keeps SIGHUP from ending the process from now on; an early one is kept for the first
    /// [`watch`](Self::watch). A program that watches later, once it has started, calls this first:
    /// until then, SIGHUP's default action would end it.
    ///
    /// # Errors
    /// The system lets no signal be handled.
    pub fn expect() -> io::Result<()> {
        let flag = EARLY.get_or_init(Arc::default);
        signal_hook::flag::register(SIGHUP, Arc::clone(flag)).map(drop)
    }

    /// Starts to watch.
    ///
    /// # Errors
    /// The system lets no signal be handled.
    pub fn watch() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let id = signal_hook::flag::register(SIGHUP, Arc::clone(&flag))?;
        // In this order no signal is missed; one that comes in between is reported once.
        if EARLY.get().is_some_and(|early| early.swap(false, Ordering::Relaxed)) {
            flag.store(true, Ordering::Relaxed);
        }
        Ok(Self { flag, id })
    }

    /// Whether SIGHUP has come since the last call, any number of times.
    #[must_use]
    pub fn came(&self) -> bool {
        self.flag.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Hangup {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hangup_is_reported_once_to_each_watcher() {
        let (first, second) = (Hangup::watch().unwrap(), Hangup::watch().unwrap());
        assert!(!first.came() && !second.came());
        signal_hook::low_level::raise(SIGHUP).unwrap();
        signal_hook::low_level::raise(SIGHUP).unwrap();
        assert!(first.came() && !first.came());
        drop(first);
        assert!(second.came());
        signal_hook::low_level::raise(SIGHUP).unwrap();
        assert!(second.came());
    }
}
