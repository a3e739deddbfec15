//! What runs: nodes that pass bursts on, each owning those after it.

use crate::part::Part;
use crate::turn::TurnContext;
use hotloop_stage::Burst;

/// A node of a chain, together with all nodes after it.
pub trait Node<In> {
    /// Takes all items of `burst` and passes on what becomes of them. Where something panics, the
    /// items that no node has taken stay in `burst`.
    fn accept(&mut self, context: TurnContext<'_>, burst: &mut Burst<In>);

    /// One turn, with or without packets: calls `tick` of the stages and runs what came through the
    /// rings of later groups. Returns the number of packets that came.
    fn turn(&mut self, context: TurnContext<'_>) -> usize;

    /// One turn of the drain, once nothing comes from the nodes before. Returns whether nothing is
    /// left here or in later nodes of this core.
    fn close(&mut self, context: TurnContext<'_>) -> bool;

    /// The number of items that find room in the rings of every boundary of this core.
    fn room(&mut self) -> usize;

    /// Calls `see` with every part of the chain from here on, in the order of a packet.
    fn visit(&mut self, see: &mut dyn FnMut(&mut dyn Part));
}

/// Calls [`Node::accept`] where that is rare. All later nodes are inlined into a call: one in each place
/// would double the code with every node.
#[inline(never)]
pub fn pass_on<T>(node: &mut impl Node<T>, context: TurnContext<'_>, burst: &mut Burst<T>) {
    let place = context.watch.place();
    node.accept(context, burst);
    // What runs here goes on.
    context.watch.enter(place);
}
