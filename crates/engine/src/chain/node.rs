//! The running form of a chain: nodes that pass bursts on, each owning the nodes after it.

use crate::node_info::NodeInfo;
use crate::turn::TurnContext;
use hotloop_stage::Burst;

/// A node of a chain, together with all nodes after it.
pub trait Node<In> {
    /// Takes all items of `burst` and passes the results on. If a node panics, the items that no
    /// node has taken stay in `burst`.
    fn accept(&mut self, context: TurnContext<'_>, burst: &mut Burst<In>);

    /// Takes one turn, with or without packets: calls `tick` of the stages and runs packets from
    /// the rings of later groups. Returns the number of packets that came.
    fn turn(&mut self, context: TurnContext<'_>) -> usize;

    /// Takes one turn of the drain, once nothing comes from the nodes before. Returns whether
    /// nothing is left here or in later nodes of this core.
    fn close(&mut self, context: TurnContext<'_>) -> bool;

    /// Number of items that the rings of every boundary of this core have room for.
    fn room(&mut self) -> usize;

    /// Calls `see` with every part of the chain from here on, in the order of a packet.
    fn visit(&mut self, see: &mut dyn FnMut(&mut dyn NodeInfo));
}

/// Calls [`Node::accept`] in rare cases. All later nodes are inlined into a call: with more than
/// one call site, the code would double with every node.
#[inline(never)]
pub fn pass_on<T>(node: &mut impl Node<T>, context: TurnContext<'_>, burst: &mut Burst<T>) {
    let place = context.watch.place();
    node.accept(context, burst);
    // This place's turn continues.
    context.watch.enter(place);
}
