//! Ctrl-C: the live demo ends in order, so that nothing is left behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::failure::Failure;

static CAME: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGINT and SIGTERM no longer end the process: [`check`] says that they came.
pub fn watch() -> Result<(), Failure> {
    let came = CAME.get_or_init(Default::default);
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(came))
            .map_err(|error| Failure::failed(format!("signals can't be watched: {error}")))?;
    }
    Ok(())
}

/// A failure, if one came.
pub fn check() -> Result<(), Failure> {
    if CAME.get().is_some_and(|came| came.load(Ordering::Relaxed)) {
        return Err(Failure::failed("interrupted"));
    }
    Ok(())
}
