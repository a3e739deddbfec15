//! A node's configuration at its start: from the store, or else from the copy that the node keeps.

use super::copy;
use crate::config::{Config, ConfigError, Store};
use crate::failure::BadInput;
use hotloop::engine::Control;
use hotloop_cluster::store::StoreError;
use hotloop_cluster::store::etcd::{Bounds, Etcd};
use hotloop_cluster::store::layout::{self, Stored};
use hotloop_cluster::store::nothing_in;
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

/// The configuration of the node whose file has the name and text `node`, with the stored text that
/// it was made from.
///
/// # Errors
/// If the configuration is invalid or, without patience, if there is none.
pub fn start(
    node: (&str, &str),
    store: &Store,
    patience: Patience,
) -> Result<(Config, Stored), BadInput> {
    let parse = |stored: Stored| {
        Config::parse_shared(node, (&stored.name, &stored.text)).map(|config| (config, stored))
    };
    let copy = copy::load(store)?;
    let etcd = Etcd::new(store.address.clone(), Bounds::default());
    let mut attempt_count = 0;
    loop {
        let error = match read(&etcd) {
            Ok(stored) => return parse(stored).or_else(|error| instead(copy, &error, parse)),
            Err(error) => error,
        };
        if let Some(copy) = copy {
            tracing::warn!("{error}; {}, revision {}, is used instead", copy.name, copy.revision);
            return Ok(parse(copy)?);
        }
        let path = store.copy.display();
        if patience == Patience::None || Control::signal_came() {
            return Err(BadInput::new(format!("{error}; nor is there a copy in {path}")));
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
fn instead(
    copy: Option<Stored>,
    error: &ConfigError,
    parse: impl Fn(Stored) -> Result<(Config, Stored), ConfigError>,
) -> Result<(Config, Stored), BadInput> {
    let Some(Ok((config, copy))) = copy.map(parse) else { return Err(error.clone().into()) };
    tracing::error!("{error}; {}, revision {}, is used instead", copy.name, copy.revision);
    Ok((config, copy))
}
