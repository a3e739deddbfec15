//! Whether packets are received.

use hotloop::stage::{Burst, Device, Error, Limits, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Closes and opens all sources of a balancer at once.
#[derive(Clone, Debug)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// A gate that is open or closed.
    #[must_use]
    pub fn new(is_open: bool) -> Self {
        Self(Arc::new(AtomicBool::new(is_open)))
    }

    /// Opens or closes the gate.
    pub fn set_open(&self, is_open: bool) {
        // A core's later actions, after it sees a later message, also follow this store.
        self.0.store(is_open, Ordering::Release);
    }
}

/// A source that yields nothing while its gate is closed: its packets stay where they are. The cost
/// is one read of memory that is rarely written, once per burst.
#[derive(Debug)]
pub struct Gated<S> {
    /// The source.
    pub source: S,
    /// The source's gate.
    pub gate: Gate,
}

impl<S: Source> Source for Gated<S> {
    type Item = S::Item;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<S::Item>) -> usize {
        if self.gate.0.load(Ordering::Relaxed) { self.source.poll(burst) } else { 0 }
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.source.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.source.devices()
    }

    fn lossless(&self) -> bool {
        self.source.lossless()
    }

    fn creates(&self) -> bool {
        self.source.creates()
    }

    fn waiting_count(&mut self) -> Option<usize> {
        self.source.waiting_count()
    }

    fn stop(&mut self) -> bool {
        self.source.stop()
    }

    fn finished(&self) -> bool {
        self.source.finished()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One packet for each poll.
    struct Endless;

    impl Source for Endless {
        type Item = u8;

        fn poll(&mut self, burst: &mut Burst<u8>) -> usize {
            burst.push(1);
            1
        }
    }

    #[test]
    fn what_is_closed_yields_nothing_until_it_is_opened() {
        let (gate, mut burst) = (Gate::new(false), Burst::new());
        let mut sources = [1, 2].map(|_| Gated { source: Endless, gate: gate.clone() });
        for (is_open, expected) in [(false, 0), (true, 2), (false, 2), (true, 4)] {
            gate.set_open(is_open);
            sources.iter_mut().for_each(|source| _ = source.poll(&mut burst));
            assert_eq!(burst.len(), expected);
        }
    }
}
