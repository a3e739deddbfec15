//! A side exit: some packets leave the chain through a sink of their own.

use super::node::{Node, Part, Place, abandon_received};
use super::sink_node::Collected;
use hotloop_stage::{BURST_CAPACITY, Burst, Carries, Device, Error, Facts, Sink, Tick};
use std::sync::Arc;

/// What a stage ahead of an [`exit`](crate::Chain::exit) emits: a packet that goes on to the next
/// stage, or one that leaves the chain, such as an answer.
#[derive(Clone, Copy, Debug)]
pub enum Fork<On, Exit> {
    /// It goes on.
    On(On),
    /// It leaves by the exit.
    Exit(Exit),
}

impl<On: Carries, Exit: Carries> Carries for Fork<On, Exit> {
    fn carried(&self) -> &[u8] {
        match self {
            Self::On(packet) => packet.carried(),
            Self::Exit(packet) => packet.carried(),
        }
    }

    fn arrival(&self) -> Option<Tick> {
        match self {
            Self::On(packet) => packet.arrival(),
            Self::Exit(packet) => packet.arrival(),
        }
    }
}

/// An exit and the nodes after it.
pub struct ExitNode<On, S: Sink, D> {
    exit: Exit<On, S>,
    down: D,
}

/// The sink of an exit, and the packets on their way past it. Those have no counters of their own:
/// where a panic strands them, they count in the row of the exit.
struct Exit<On, S: Sink> {
    past: Burst<On>,
    sink: Collected<S>,
}

impl<On, S: Sink, D> ExitNode<On, S, D> {
    pub const fn new(sink: Collected<S>, down: D) -> Self {
        Self { exit: Exit { past: Burst::new(), sink }, down }
    }
}

impl<On, S: Sink, D: Node<On>> Node<Fork<On, S::Item>> for ExitNode<On, S, D> {
    #[inline(always)]
    fn accept(&mut self, now: Tick, burst: &mut Burst<Fork<On, S::Item>>) {
        let Exit { past, sink } = &mut self.exit;
        burst.map_into(past, |fork| match fork {
            Fork::On(packet) => Some(packet),
            Fork::Exit(packet) => {
                sink.burst.push(packet);
                None
            }
        });
        sink.flush();
        if !past.is_empty() {
            self.down.accept(now, past);
        }
    }

    #[inline(always)]
    fn turn(&mut self, now: Tick) -> usize {
        self.down.turn(now)
    }

    fn close(&mut self, now: Tick) -> bool {
        self.down.close(now)
    }

    fn room(&mut self) -> usize {
        self.down.room()
    }

    fn visit(&mut self, see: &mut dyn FnMut(&mut dyn Part)) {
        see(&mut self.exit);
        self.down.visit(see);
    }
}

impl<On, S: Sink> Part for Exit<On, S> {
    fn place(&self) -> Place {
        self.sink.place()
    }

    fn in_flight(&self) -> usize {
        self.past.len() + self.sink.in_flight()
    }

    fn in_flight_max(&self) -> usize {
        BURST_CAPACITY + self.sink.in_flight_max()
    }

    fn abandon(&mut self) {
        self.sink.abandon();
        abandon_received(self.sink.counters(), &mut self.past);
    }

    fn start(&mut self, facts: &Facts, is_lossless: bool) -> Result<(), Error> {
        self.sink.start(facts, is_lossless)
    }

    fn devices(&self) -> Option<Vec<Arc<dyn Device>>> {
        self.sink.devices()
    }

    fn maintain(&mut self) {
        self.sink.maintain();
    }
}
