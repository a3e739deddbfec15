//! The stage that finds neighbours in what is received.

use super::table::Neighbours;
use crate::{Cx, NoDrops, Stage, Verdict};
use hotloop_packet::PacketBuf;
use std::sync::Arc;

/// Shows each packet to the [`Neighbours`], as [`learn_from`](Neighbours::learn_from) does, and passes all
/// on.
#[derive(Debug)]
pub struct Learn(Arc<Neighbours>);

impl Learn {
    /// Feeds these neighbours.
    #[must_use]
    pub const fn new(neighbours: Arc<Neighbours>) -> Self {
        Self(neighbours)
    }
}

impl<P: PacketBuf> Stage<P> for Learn {
    type Out = P;
    type Drop = NoDrops;

    #[inline]
    fn packet(&mut self, cx: &mut Cx<'_, NoDrops>, packet: P) -> Verdict<P> {
        self.0.learn_from(packet.data(), cx.now());
        Ok(packet)
    }
}
