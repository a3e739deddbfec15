//! A part of a chain, as seen from outside the packet path.

use hotloop_stage::{Device, Error, Limits};
use hotloop_watch::Place;
use std::sync::Arc;

/// A part of a chain that counts packets and may hold some, as seen from outside the packet path.
pub trait NodeInfo {
    /// The part's place in the report.
    fn place(&self) -> Place;

    /// Sets its number among the parts of its core, in the order of a packet. The part uses the
    /// number to show that it runs.
    fn set_number(&mut self, number: u32);

    /// The number of packets that wait for this part, and its capacity if known; `None` if no
    /// packets can wait or the number is unknown.
    fn fill(&mut self) -> Option<(usize, Option<usize>)> {
        None
    }

    /// Packets inside, found by walking bursts and rings and asking stages for the packets that
    /// they hold.
    fn in_flight(&self) -> usize;

    /// Maximum number of packets that can be inside.
    fn in_flight_max(&self) -> usize;

    /// After a panic: drops the packets inside and counts them as lost to the panic.
    fn abandon(&mut self);

    /// After [`abandon`](Self::abandon): drops packets that other cores still send here. Returns
    /// whether nothing more can come.
    fn discard(&mut self) -> bool {
        true
    }

    /// Starts its devices. With `is_lossless`, a source of the graph can wait, and rings must not
    /// overflow.
    ///
    /// # Errors
    /// If a device does not start: the first one's error.
    fn start(&mut self, limits: &Limits, is_lossless: bool) -> Result<(), Error> {
        let _ = (limits, is_lossless);
        Ok(())
    }

    /// Whether the part is a source that can wait.
    fn is_lossless(&self) -> bool {
        false
    }

    /// Whether the part has work left that does not depend on packets:
    /// [`BurstStage::has_work`](hotloop_stage::BurstStage::has_work).
    fn has_work(&self) -> bool {
        false
    }

    /// The devices of the part's source or sink; `None` if it has neither.
    fn devices(&self) -> Option<Vec<Arc<dyn Device>>> {
        None
    }

    /// Calls [`Sink::maintain`](hotloop_stage::Sink::maintain) of its sink.
    fn maintain(&mut self) {}
}
