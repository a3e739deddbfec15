//! A node's configuration at its start: from the store, or else from the copy that the node keeps.

use super::error::{StoreError, nothing_in};
use super::etcd::{Bounds, Etcd};
use super::layout::{self, Stored};
use crate::settings::Store;
use hotloop::engine::Control;
use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// Interval of attempts to read a store if there is no copy.
const WAIT: Duration = Duration::from_secs(1);

/// Interval of checks for a signal meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Number of attempts per message.
const ATTEMPTS_A_MESSAGE: usize = 10;

/// The reaction if neither the store nor a copy has a configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Patience {
    /// Return an error.
    None,
    /// Wait until the store has one, or a signal comes.
    Endless,
}

/// The configuration that `parse` makes of the stored text, or else of the node's copy, together
/// with that text.
///
/// # Errors
/// If the node's files for access to the store are wrong, if the configuration is invalid or, without
/// patience, if there is none.
pub fn start<C, E: Display>(
    store: &Store,
    copy: Option<Stored>,
    patience: Patience,
    parse: impl Fn(&Stored) -> Result<C, E>,
) -> Result<(C, Stored), String> {
    let parse = |stored: Stored| {
        parse(&stored).map(|config| (config, stored)).map_err(|error| error.to_string())
    };
    let etcd = Etcd::new(store.access.clone(), Bounds::default());
    let etcd = etcd.map_err(|error| error.to_string())?;
    let mut attempt_count = 0;
    loop {
        let error = match read(&etcd) {
            Ok(stored) => return parse(stored).or_else(|error| instead(copy, error, parse)),
            Err(error) => error,
        };
        if let Some(copy) = copy {
            tracing::warn!("{error}; {}, revision {}, is used instead", copy.name, copy.revision);
            return parse(copy);
        }
        let path = store.copy.display();
        if patience == Patience::None || Control::signal_came() {
            return Err(format!("{error}; nor is there a copy in {path}"));
        }
        if attempt_count % ATTEMPTS_A_MESSAGE == 0 {
            tracing::error!("{error}; nor is there a copy in {path}: waiting for a configuration");
        }
        attempt_count += 1;
        let started = Instant::now();
        while started.elapsed() < WAIT && !Control::signal_came() {
            thread::sleep(LOOK_INTERVAL);
        }
    }
}

/// The store's configuration, which must exist.
fn read(etcd: &Etcd) -> Result<Stored, StoreError> {
    layout::read(etcd)?.stored.ok_or_else(|| nothing_in(etcd.address()))
}

/// Uses the copy if this node refuses the store's configuration.
fn instead<C>(
    copy: Option<Stored>,
    error: String,
    parse: impl Fn(Stored) -> Result<(C, Stored), String>,
) -> Result<(C, Stored), String> {
    let Some(Ok((config, copy))) = copy.map(parse) else { return Err(error) };
    tracing::error!("{error}; {}, revision {}, is used instead", copy.name, copy.revision);
    Ok((config, copy))
}
