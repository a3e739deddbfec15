//! Fragments: where the first of a datagram went, and those that came before it.

use crate::own_header::OwnHeader;
use crate::prefix::bits;
use crate::services::TargetId;
use hotloop::stage::Instant;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::iter;

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
    pub firsts: FirstFragments,
    /// In the order in which they came.
    waiting: VecDeque<Waiting<P>>,
}

#[derive(Debug)]
struct Waiting<P> {
    datagram: Datagram,
    since: Instant,
    hash: u32,
    packet: P,
}

impl<P> Fragments<P> {
    /// Knows none yet. Takes all of its memory.
    pub fn new() -> Self {
        Self { firsts: FirstFragments::new(), waiting: VecDeque::with_capacity(WAITING_MAX) }
    }

    /// Keeps a fragment that came before its first. Where there is no room, the oldest makes room for
    /// it, and is returned.
    pub fn wait(&mut self, datagram: Datagram, hash: u32, packet: P, now: Instant) -> Option<P> {
        let is_full = self.waiting.len() >= WAITING_MAX;
        let oldest = if is_full { self.waiting.pop_front() } else { None };
        self.waiting.push_back(Waiting { datagram, since: now, hash, packet });
        oldest.map(|it| it.packet)
    }

    /// Takes out the next fragment that waits for this datagram's first, with its hash.
    pub fn released(&mut self, datagram: Datagram) -> Option<(P, u32)> {
        let index = self.waiting.iter().position(|it| it.datagram == datagram)?;
        self.waiting.remove(index).map(|it| (it.packet, it.hash))
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

/// How many datagrams a worker remembers the target of: the latest ones. A first fragment is forgotten
/// when this many others have come since. So of `n` of them a second, a later fragment may follow its
/// first within 4,096 / `n` seconds: 4 ms of a flood of a million.
const DATAGRAMS_MAX: usize = 4096;

/// How long each is remembered at most, in nanoseconds: a later fragment follows its first within
/// milliseconds.
const REMEMBERED_NS: u64 = 2_000_000_000;

/// So that most buckets have one datagram or none.
const BUCKET_COUNT: usize = 2 * DATAGRAMS_MAX;

/// The latest first fragments.
///
/// Each has a number, in the order in which they came, and the place of its number in a ring: the
/// next that comes there evicts it. Those of one bucket form a chain from the latest to the oldest. A chain ends
/// where a number is no longer in the ring, so that eviction needs no work on it.
#[derive(Debug)]
pub struct FirstFragments {
    /// The ring: `number % DATAGRAMS_MAX` is a number's place.
    ring: Box<[First]>,
    /// By bucket, the number of the latest.
    latest: Box<[u64]>,
    /// The number of the next to come. Invariant: above [`DATAGRAMS_MAX`], so that 0 is none's.
    next: u64,
    /// Secret, so that nobody can choose datagrams of one bucket.
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct First {
    datagram: Datagram,
    target: TargetId,
    since: Instant,
    /// The number of the one before it in its bucket.
    previous: u64,
}

impl FirstFragments {
    /// Remembers none yet. Takes all of its memory.
    pub fn new() -> Self {
        let target = TargetId { slot: 0, generation: 0 };
        let (datagram, since) = (Datagram::default(), Instant::from_ns(0));
        let none = First { datagram, target, since, previous: 0 };
        Self {
            ring: vec![none; DATAGRAMS_MAX].into(),
            latest: vec![0; BUCKET_COUNT].into(),
            next: DATAGRAMS_MAX as u64 + 1,
            hasher: RandomState::new(),
        }
    }

    /// The first fragment of the datagram went to `target` now. The oldest makes room for it.
    pub fn remember(&mut self, datagram: Datagram, target: TargetId, now: Instant) {
        let bucket = self.bucket(datagram);
        // One that comes again takes a new place, and leaves the chain at its old one: no chain has a
        // datagram twice, however often it comes.
        self.unlink(bucket, datagram);
        let number = self.next;
        let previous = self.latest[bucket];
        self.ring[place(number)] = First { datagram, target, since: now, previous };
        self.latest[bucket] = number;
        self.next += 1;
    }

    /// Where the first fragment of the datagram went, if that is remembered.
    pub fn target(&self, datagram: Datagram, now: Instant) -> Option<TargetId> {
        let mut firsts = self.chain(self.bucket(datagram)).map(|number| &self.ring[place(number)]);
        let first = firsts.find(|first| first.datagram == datagram)?;
        (now.ns_since(first.since) <= REMEMBERED_NS).then_some(first.target)
    }

    fn bucket(&self, datagram: Datagram) -> usize {
        self.hasher.hash_one(datagram) as usize % BUCKET_COUNT
    }

    /// The numbers of a bucket's datagrams that are in the ring, from the latest on.
    fn chain(&self, bucket: usize) -> impl Iterator<Item = u64> {
        let in_ring = |number: u64| (self.next - number <= DATAGRAMS_MAX as u64).then_some(number);
        iter::successors(in_ring(self.latest[bucket]), move |number| {
            in_ring(self.ring[place(*number)].previous)
        })
    }

    /// Takes a datagram out of its chain, if it is there.
    fn unlink(&mut self, bucket: usize, datagram: Datagram) {
        let mut later = None;
        let mut chain = self.chain(bucket);
        let found = chain.find(|number| {
            let is_found = self.ring[place(*number)].datagram == datagram;
            if !is_found {
                later = Some(*number);
            }
            is_found
        });
        drop(chain);
        let Some(number) = found else { return };
        let previous = self.ring[place(number)].previous;
        match later {
            Some(later) => self.ring[place(later)].previous = previous,
            None => self.latest[bucket] = previous,
        }
    }
}

/// Where a number is in the ring.
const fn place(number: u64) -> usize {
    (number % DATAGRAMS_MAX as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::testing::Rng;

    fn target(slot: u32) -> TargetId {
        TargetId { slot, generation: 1 }
    }

    /// Against a list, the latest last: few datagrams that come again and again, or more than there is
    /// room for.
    #[test]
    fn finds_what_a_list_finds() {
        for (seed, datagram_count) in [(1, 40), (2, 4_096), (3, 6_000), (4, 100_000)] {
            let mut rng = Rng::seeded(seed);
            let (mut firsts, mut list, mut now) = (FirstFragments::new(), VecDeque::new(), 0);
            for step in 0..30_000 {
                now += rng.below(800_000);
                let datagram = Datagram::numbered(rng.below(datagram_count));
                let tick = Instant::from_ns(now);
                if rng.permille(700) {
                    firsts.remember(datagram, target(step), tick);
                    list.push_back((datagram, target(step), now));
                    if list.len() > 4_096 {
                        list.pop_front();
                    }
                }
                if step % 8 == 0 {
                    let found = list.iter().rfind(|first| first.0 == datagram);
                    let found = found.filter(|first| now - first.2 <= 2_000_000_000);
                    assert_eq!(firsts.target(datagram, tick), found.map(|first| first.1), "{step}");
                }
            }
        }
    }

    /// However often one comes, others are found at once.
    #[test]
    fn no_chain_has_a_datagram_twice() {
        let (mut firsts, now) = (FirstFragments::new(), Instant::from_ns(0));
        for count in 0..10_000 {
            firsts.remember(Datagram::numbered(count % 3), target(0), now);
        }
        let lengths = (0..BUCKET_COUNT).map(|bucket| firsts.chain(bucket).count());
        assert_eq!(lengths.sum::<usize>(), 3);
    }
}
