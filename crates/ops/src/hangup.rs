//! SIGHUP, which asks a program to read its configuration again.

use signal_hook::consts::SIGHUP;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Set by SIGHUP, once it is expected.
static CAME: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on, SIGHUP calls [`Steer::hangup`](crate::Steer::hangup) during the run instead of
/// ending the process. One that comes before the run is kept for its first turn, so a program calls
/// this before slow work. `RunArgs::begin_with_hangup` does.
///
/// # Errors
/// The system lets no signal be handled.
pub fn expect_hangup() -> io::Result<()> {
    let flag = CAME.get_or_init(Arc::default);
    signal_hook::flag::register(SIGHUP, Arc::clone(flag)).map(drop)
}

/// Whether SIGHUP has come since the last call, any number of times.
pub(crate) fn hangup_came() -> bool {
    CAME.get().is_some_and(|flag| flag.swap(false, Ordering::Relaxed))
}
