//! The start of a node, which gets no packets before it knows all exceptions.

/// The nodes of a cluster, a bit for each place among its members.
pub type Nodes = u32;

/// The snapshots that a starting node has taken, one of each peer that gets packets.
///
/// An exception may be known to some peers only, as its claim is still on its way to the others. So a
/// snapshot of one peer isn't enough, and all are taken again when a peer ends before the node has its
/// snapshot: others may have got that peer's claims after theirs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Joining {
    taken: Nodes,
}

impl Joining {
    /// The snapshot of a peer has been entered.
    pub const fn take(&mut self, peer: u32) {
        self.taken |= 1 << peer;
    }

    /// A peer has ended.
    pub const fn lose(&mut self, peer: u32) {
        if self.taken >> peer & 1 == 0 {
            self.taken = 0;
        }
        self.taken &= !(1 << peer);
    }

    /// The peers among these that have no snapshot yet.
    #[must_use]
    pub const fn missing(&self, receiving: Nodes) -> Nodes {
        receiving & !self.taken
    }
}
