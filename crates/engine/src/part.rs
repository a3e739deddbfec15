//! A part of a chain, as it is seen outside the packet path.

use hotloop_stage::{Device, Error, Limits};
use hotloop_watch::Place;
use std::sync::Arc;

/// A part of a chain that counts packets and may hold some, as it is seen outside the packet path.
pub trait Part {
    /// Its place in the report.
    fn place(&self) -> Place;

    /// Sets its number among the parts of its core, in the order of a packet, by which it says that it
    /// runs.
    fn set_number(&mut self, number: u32);

    /// Packets that wait for it, and how many find room, where that is known; nothing where none wait
    /// or nobody knows.
    fn fill(&mut self) -> Option<(usize, Option<usize>)> {
        None
    }

    /// Packets in it, found by walking bursts and rings and asking stages what they hold.
    fn in_flight(&self) -> usize;

    /// The most packets that can be in it.
    fn in_flight_max(&self) -> usize;

    /// After a panic: drops what is in it and counts that as lost to the panic.
    fn abandon(&mut self);

    /// After [`abandon`](Self::abandon): drops what other cores still send here. Returns whether
    /// nothing more can come.
    fn discard(&mut self) -> bool {
        true
    }

    /// Starts its devices. Where `is_lossless`, a source of the graph can wait, and rings must not
    /// overflow.
    ///
    /// # Errors
    /// The first device's that does not start.
    fn start(&mut self, limits: &Limits, is_lossless: bool) -> Result<(), Error> {
        let _ = (limits, is_lossless);
        Ok(())
    }

    /// Whether it is a source that can wait.
    fn is_lossless(&self) -> bool {
        false
    }

    /// Whether it has work left that no packet brings: [`BurstStage::has_work`](hotloop_stage::BurstStage::has_work).
    fn has_work(&self) -> bool {
        false
    }

    /// The devices of its source or sink; none where it has neither.
    fn devices(&self) -> Option<Vec<Arc<dyn Device>>> {
        None
    }

    /// Calls [`Sink::maintain`](hotloop_stage::Sink::maintain) of its sink.
    fn maintain(&mut self) {}
}
