//! A side exit: some packets leave the chain through their own sinks.

use super::bounds::Forked;
use super::node::Node;
use crate::node_info::NodeInfo;
use crate::settle::abandon_emitted;
use crate::turn::TurnContext;
use hotloop_stage::{BURST_CAPACITY, Burst, Carries, Counters, Instant};
use hotloop_watch::{Place, PlaceKind};
use std::sync::Arc;

/// The item of a stage before an [`exit`](crate::Chain::exit): a packet for the next stage, or one
/// that leaves the chain, such as an answer.
#[derive(Clone, Copy, Debug)]
pub enum Fork<On, Exit> {
    /// The packet continues to the next stage.
    On(On),
    /// The packet leaves by the exit.
    Exit(Exit),
}

impl<On: Carries, Exit: Carries> Carries for Fork<On, Exit> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::On(packet) => packet.bytes(),
            Self::Exit(packet) => packet.bytes(),
        }
    }

    fn total_bytes(&self) -> usize {
        match self {
            Self::On(packet) => packet.total_bytes(),
            Self::Exit(packet) => packet.total_bytes(),
        }
    }

    fn each_segment(&self, take: &mut dyn FnMut(&[u8])) {
        match self {
            Self::On(packet) => packet.each_segment(take),
            Self::Exit(packet) => packet.each_segment(take),
        }
    }

    fn arrival(&self) -> Option<Instant> {
        match self {
            Self::On(packet) => packet.arrival(),
            Self::Exit(packet) => packet.arrival(),
        }
    }

    #[inline(always)]
    fn prefetch(&self, is_ahead: bool) {
        match self {
            Self::On(packet) => packet.prefetch(is_ahead),
            Self::Exit(packet) => packet.prefetch(is_ahead),
        }
    }
}

/// An exit with its sinks, and the nodes after it.
pub struct ExitNode<In: Forked, X, D> {
    parting: Parting<In::On, In::Exit>,
    exit: X,
    down: D,
}

/// Separates the packets, and holds those that were not passed on yet.
struct Parting<On, Exit> {
    on: Burst<On>,
    leaving: Burst<Exit>,
    name: String,
    number: u32,
    group: usize,
    counters: Arc<Counters>,
}

impl<In: Forked, X: Node<In::Exit>, D: Node<In::On>> ExitNode<In, X, D> {
    pub fn new(name: String, group: usize, exit: X, down: D) -> Self {
        let (on, leaving, counters) = (Burst::new(), Burst::new(), Arc::new(Counters::new(&[])));
        Self { parting: Parting { on, leaving, name, number: 0, group, counters }, exit, down }
    }
}

impl<In: Forked, X: Node<In::Exit>, D: Node<In::On>> Node<In> for ExitNode<In, X, D> {
    #[inline(always)]
    fn accept(&mut self, context: TurnContext<'_>, burst: &mut Burst<In>) {
        context.watch.enter(self.parting.number);
        let Parting { on, leaving, counters, .. } = &mut self.parting;
        counters.received.add(burst.len() as u64);
        counters.emitted.add(burst.len() as u64);
        burst.map_into(on, |item| match item.fork() {
            Fork::On(packet) => Some(packet),
            Fork::Exit(packet) => {
                leaving.push(packet);
                None
            }
        });
        if !leaving.is_empty() {
            self.exit.accept(context, leaving);
        }
        if !on.is_empty() {
            self.down.accept(context, on);
        }
    }

    #[inline(always)]
    fn turn(&mut self, context: TurnContext<'_>) -> usize {
        self.down.turn(context)
    }

    fn close(&mut self, context: TurnContext<'_>) -> bool {
        self.down.close(context)
    }

    fn room(&mut self) -> usize {
        self.down.room()
    }

    fn visit(&mut self, see: &mut dyn FnMut(&mut dyn NodeInfo)) {
        see(&mut self.parting);
        self.exit.visit(see);
        self.down.visit(see);
    }
}

impl<On, Exit> NodeInfo for Parting<On, Exit> {
    fn place(&self) -> Place {
        Place::new(PlaceKind::Stage, self.group, &self.name, &self.counters)
    }

    fn set_number(&mut self, number: u32) {
        self.number = number;
    }

    fn in_flight(&self) -> usize {
        self.on.len() + self.leaving.len()
    }

    fn in_flight_max(&self) -> usize {
        2 * BURST_CAPACITY
    }

    fn abandon(&mut self) {
        abandon_emitted(&self.counters, &mut self.on);
        abandon_emitted(&self.counters, &mut self.leaving);
    }
}
