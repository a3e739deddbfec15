//! Fragments: where the first of a datagram went, and those that came before it.

use crate::directory::TargetId;
use crate::own_header::OwnHeader;
use crate::prefix::bits;
use hotloop::arena::{Arena, Request};
use hotloop::flow::{Config, Full, Table};
use hotloop::packet::classify::Layout;
use hotloop::stage::{Error, Tick};
use std::collections::VecDeque;

/// How many datagrams a worker remembers the target of.
const DATAGRAMS_MAX: usize = 4096;

/// How long, after the first fragment: longer than hosts wait for the rest (RFC 1122, section
/// 3.3.2, asks for 60 to 120 s; Linux takes 30).
const REMEMBERED_NS: u64 = 30_000_000_000;

/// How many fragments wait for their first.
pub const WAITING_MAX: usize = 256;

/// How long they wait, in nanoseconds.
pub const WAIT_NS: u64 = 1_000_000_000;

/// What the fragments of a datagram share (RFC 791, section 2.3; RFC 8200, section 4.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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
}

/// What a worker knows of fragments.
#[derive(Debug)]
pub struct Fragments<P> {
    targets: Table<[u64; 5], TargetId>,
    /// In the order in which they came.
    waiting: VecDeque<Waiting<P>>,
}

#[derive(Debug)]
struct Waiting<P> {
    datagram: Datagram,
    since: Tick,
    layout: Layout,
    packet: P,
}

impl<P> Fragments<P> {
    /// Knows none, in memory of `node` where that is known.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(node: Option<u32>) -> Result<Self, Error> {
        let bytes = Table::<[u64; 5], TargetId>::bytes(DATAGRAMS_MAX).expect("a small table");
        let (arena, _) = Arena::new(Request { node, ..Request::new(bytes) })?;
        let config = Config { full: Full::Refuse, ..Config::new(DATAGRAMS_MAX, REMEMBERED_NS) };
        let targets = Table::new(arena, config)?;
        Ok(Self { targets, waiting: VecDeque::with_capacity(WAITING_MAX) })
    }

    /// A first fragment went to `target`. Where there is no room, that isn't remembered.
    pub fn remember(&mut self, datagram: Datagram, target: TargetId, now: Tick) {
        // A refused one costs its later fragments, which are counted as orphans then.
        let _ = self.targets.insert(datagram.0, target, now.as_ns());
    }

    /// Where the first fragment of the datagram went.
    pub fn target(&self, datagram: Datagram, now: Tick) -> Option<TargetId> {
        // Not by `get`: later fragments don't lengthen the time.
        self.targets.peek(&datagram.0, now.as_ns()).map(|handle| self.targets[handle])
    }

    /// Keeps a fragment that came before its first. Gives it back where there is no room.
    pub fn wait(
        &mut self,
        datagram: Datagram,
        layout: Layout,
        packet: P,
        now: Tick,
    ) -> Result<(), P> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(packet);
        }
        self.waiting.push_back(Waiting { datagram, since: now, layout, packet });
        Ok(())
    }

    /// Takes out the next fragment that waits for this datagram's first, with its layout.
    pub fn released(&mut self, datagram: Datagram) -> Option<(P, Layout)> {
        let index = self.waiting.iter().position(|it| it.datagram == datagram)?;
        self.waiting.remove(index).map(|it| (it.packet, it.layout))
    }

    /// Takes out the next fragment that has waited too long; at the end of a run, any.
    pub fn given_up(&mut self, now: Option<Tick>) -> Option<P> {
        let oldest = self.waiting.front()?;
        if now.is_some_and(|now| now.ns_since(oldest.since) < WAIT_NS) {
            return None;
        }
        self.waiting.pop_front().map(|it| it.packet)
    }

    /// Forgets old datagrams, in a bounded step.
    #[inline]
    pub fn age(&mut self, now: Tick) {
        if !self.targets.is_empty() {
            self.targets.age(now.as_ns(), 15, |_, _| {});
        }
    }

    /// How many fragments wait.
    #[inline]
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }
}
