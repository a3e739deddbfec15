//! One type for a queue of a port and for an end of a kernel port.

use hotloop_stage::{Burst, Device, Error, Limits, Sink, Source};
use std::sync::Arc;

/// A queue of a port, or an end of a [`KernelPort`](super::KernelPort): the engine's `sources` and
/// `outlets` need several of one type.
#[derive(Debug)]
pub enum PortOrKernel<P, K> {
    /// A port's queue.
    Port(P),
    /// A kernel port's end.
    Kernel(K),
}

/// Calls a method of the queue or the end.
macro_rules! either {
    ($end:expr, $of:ident => $call:expr) => {
        match $end {
            PortOrKernel::Port($of) => $call,
            PortOrKernel::Kernel($of) => $call,
        }
    };
}

impl<P: Source, K: Source<Item = P::Item>> Source for PortOrKernel<P, K> {
    type Item = P::Item;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<P::Item>) -> usize {
        either!(self, source => source.poll(burst))
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        either!(self, source => source.start(limits))
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        either!(self, source => source.devices())
    }

    fn lossless(&self) -> bool {
        either!(self, source => source.lossless())
    }

    fn creates(&self) -> bool {
        either!(self, source => source.creates())
    }

    fn waiting_count(&mut self) -> Option<usize> {
        either!(self, source => source.waiting_count())
    }

    fn stop(&mut self) -> bool {
        either!(self, source => source.stop())
    }

    fn finished(&self) -> bool {
        either!(self, source => source.finished())
    }
}

impl<P: Sink, K: Sink<Item = P::Item>> Sink for PortOrKernel<P, K> {
    type Item = P::Item;

    #[inline]
    fn send(&mut self, burst: &mut Burst<P::Item>) -> usize {
        either!(self, sink => sink.send(burst))
    }

    fn refused_count(&self) -> u64 {
        either!(self, sink => sink.refused_count())
    }

    fn maintain(&mut self) {
        either!(self, sink => sink.maintain());
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        either!(self, sink => sink.start(limits))
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        either!(self, sink => sink.devices())
    }
}
