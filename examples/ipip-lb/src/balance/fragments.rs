//! Fragments: where the first of a datagram went, and those that came before it.

use super::firsts::Firsts;
use crate::own_header::OwnHeader;
use crate::prefix::bits;
use hotloop::packet::classify::Layout;
use hotloop::stage::Instant;
use std::collections::VecDeque;

/// How many fragments wait for their first.
pub const WAITING_MAX: usize = 256;

/// How long they wait, in nanoseconds.
pub const WAIT_NS: u64 = 1_000_000_000;

/// What the fragments of a datagram share (RFC 791, section 2.3; RFC 8200, section 4.5).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Datagram([u64; 5]);

impl Datagram {
    /// The datagram that a fragment is of.
    #[must_use]
    pub fn of(header: &OwnHeader) -> Self {
        let (source, destination) = (bits(header.source), bits(header.destination));
        let family = u64::from(header.source.is_ipv6()) << 48;
        // In IPv6, what a fragment names need not be what the first one carries.
        let protocol = if header.source.is_ipv6() { 0 } else { header.protocol };
        let rest = family | u64::from(protocol) << 32 | u64::from(header.identification);
        let halves = |bits: u128| ((bits >> 64) as u64, bits as u64);
        let ((a, b), (c, d)) = (halves(source), halves(destination));
        Self([a, b, c, d, rest])
    }

    /// One of many.
    #[cfg(test)]
    pub const fn numbered(number: u64) -> Self {
        Self([0, 0, 0, 0, number])
    }
}

/// What a worker knows of fragments.
#[derive(Debug)]
pub struct Fragments<P> {
    /// Where first fragments went.
    pub firsts: Firsts,
    /// In the order in which they came.
    waiting: VecDeque<Waiting<P>>,
}

#[derive(Debug)]
struct Waiting<P> {
    datagram: Datagram,
    since: Instant,
    layout: Layout,
    packet: P,
}

impl<P> Fragments<P> {
    /// Knows none yet. Takes all of its memory.
    pub fn new() -> Self {
        Self { firsts: Firsts::new(), waiting: VecDeque::with_capacity(WAITING_MAX) }
    }

    /// Keeps a fragment that came before its first. Where there is no room, the oldest makes room for
    /// it, and is returned.
    pub fn wait(
        &mut self,
        datagram: Datagram,
        layout: Layout,
        packet: P,
        now: Instant,
    ) -> Option<P> {
        let is_full = self.waiting.len() >= WAITING_MAX;
        let oldest = if is_full { self.waiting.pop_front() } else { None };
        self.waiting.push_back(Waiting { datagram, since: now, layout, packet });
        oldest.map(|it| it.packet)
    }

    /// Takes out the next fragment that waits for this datagram's first, with its layout.
    pub fn released(&mut self, datagram: Datagram) -> Option<(P, Layout)> {
        let index = self.waiting.iter().position(|it| it.datagram == datagram)?;
        self.waiting.remove(index).map(|it| (it.packet, it.layout))
    }

    /// Takes out the next fragment that has waited too long; at the end of a run, any.
    pub fn given_up(&mut self, now: Option<Instant>) -> Option<P> {
        let oldest = self.waiting.front()?;
        if now.is_some_and(|now| now.ns_since(oldest.since) < WAIT_NS) {
            return None;
        }
        self.waiting.pop_front().map(|it| it.packet)
    }

    /// How many fragments wait.
    #[inline]
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }
}
