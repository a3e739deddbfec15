//! What one core does: polls, runs its chains, and drains in the end. Threads, a simulator and tests
//! drive the same thing.

mod back;
mod front;
mod line;
mod pipeline;
mod run_to_completion;

pub(crate) use back::Back;
pub(crate) use front::Front;
pub(crate) use line::Line;
pub(crate) use pipeline::{Dispatcher, ShardWorker};
pub(crate) use run_to_completion::RunToCompletion;

use crate::chain;
use hotloop_stage::{Device, Error, Facts, Tick};
use std::sync::Arc;

/// One core's share of a network function.
pub trait Worker {
    /// Starts the devices behind its queues.
    ///
    /// # Errors
    /// The first device's that does not start.
    fn start(&mut self, facts: &Facts) -> Result<(), Error>;

    /// One turn: polls once, runs what came as far as it goes, and says how many packets came.
    fn step(&mut self, now: Tick) -> usize;

    /// Has its sinks do what they have to, whether or not packets come.
    fn maintain(&mut self) {}

    /// Polls no more from now on.
    fn stop(&mut self);

    /// One turn of the end, after [`stop`](Self::stop): works off what is inside, and says whether
    /// nothing is left nor can come from another core.
    fn drain(&mut self, now: Tick) -> bool;

    /// After a panic: drops what is inside and counts it as lost to the panic.
    fn abandon(&mut self);

    /// One turn of the end, after [`abandon`](Self::abandon): drops what other cores still send
    /// here, and says whether nothing more can come.
    fn discard(&mut self) -> bool;

    /// Whether it has a source, and that has said that nothing will ever come again.
    fn is_exhausted(&self) -> bool;

    /// Whether it has a source.
    fn has_source(&self) -> bool;

    /// Packets inside, rings to it included, found by walking.
    fn in_flight(&self) -> usize;

    /// How many packets there may be inside, rings to it included.
    fn in_flight_max(&self) -> usize;

    /// The devices of its sources, then of its sinks.
    fn devices(&self) -> Devices;

    /// The places that count, in a packet's order.
    fn lines(&self) -> Vec<chain::Line>;

    /// What it did so far.
    fn tally(&self) -> Tally;
}

/// The devices that a worker's queues belong to.
#[derive(Default)]
pub struct Devices {
    /// Of its source; none where it has no source.
    pub sources: Option<Vec<Arc<dyn Device>>>,
    /// Of its sinks; none where it has no sink.
    pub sinks: Option<Vec<Arc<dyn Device>>>,
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = |devices: &Option<Vec<Arc<dyn Device>>>| -> Option<Vec<String>> {
            devices.as_ref().map(|devices| devices.iter().map(|device| device.name()).collect())
        };
        f.debug_struct("Devices")
            .field("sources", &names(&self.sources))
            .field("sinks", &names(&self.sinks))
            .finish()
    }
}

/// How much a worker did, in packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Polled from its source.
    pub polled: u64,
    /// Taken from its source, or where it has none, from other cores.
    pub received: u64,
    /// Taken over by its sinks, or where it has none, by the rings to other cores.
    pub sent: u64,
    /// Taken over by its sinks.
    pub transmitted: u64,
    /// Taken over by the rings to other cores.
    pub crossed: u64,
}

/// What the first place of a worker, its inlet, has received.
fn polled_count(lines: &[chain::Line]) -> u64 {
    lines.first().map_or(0, |line| line.counters.received.count())
}
