//! Fragments: remembers the targets of first fragments, and keeps the fragments that came before
//! their first. Uses memory allocated at the start only. Both tables are bounded: when one is full,
//! the oldest entry goes.

use crate::services::TargetId;
use hotloop::packet::fragment::FragmentId;
use hotloop::stage::Instant;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::iter;
use std::net::Ipv4Addr;

/// Maximum number of fragments that wait for their first.
pub const WAITING_MAX: usize = 256;

/// Maximum time that a fragment waits, in nanoseconds.
pub const WAIT_NS: u64 = 1_000_000_000;

/// A worker's knowledge of fragments.
#[derive(Debug)]
pub struct Fragments<P> {
    /// The targets of first fragments.
    pub firsts: FirstFragments,
    /// The waiting fragments, in order of arrival.
    waiting: VecDeque<Waiting<P>>,
}

#[derive(Debug)]
struct Waiting<P> {
    datagram: FragmentId,
    since: Instant,
    hash: u32,
    packet: P,
}

impl<P> Fragments<P> {
    /// An empty table. Allocates all of its memory.
    pub fn new() -> Self {
        Self { firsts: FirstFragments::new(), waiting: VecDeque::with_capacity(WAITING_MAX) }
    }

    /// Keeps a fragment that came before its first. If there is no room, removes and returns the
    /// oldest.
    pub fn wait(&mut self, datagram: FragmentId, hash: u32, packet: P, now: Instant) -> Option<P> {
        let is_full = self.waiting.len() >= WAITING_MAX;
        let oldest = if is_full { self.waiting.pop_front() } else { None };
        self.waiting.push_back(Waiting { datagram, since: now, hash, packet });
        oldest.map(|waiting| waiting.packet)
    }

    /// Removes and returns the next fragment that waits for this datagram's first, with its hash.
    pub fn released(&mut self, datagram: FragmentId) -> Option<(P, u32)> {
        let index = self.waiting.iter().position(|waiting| waiting.datagram == datagram)?;
        self.waiting.remove(index).map(|waiting| (waiting.packet, waiting.hash))
    }

    /// Removes and returns the next fragment that has waited too long; without a time, at the end
    /// of a run, any fragment.
    pub fn given_up(&mut self, now: Option<Instant>) -> Option<P> {
        let oldest = self.waiting.front()?;
        if now.is_some_and(|now| now.ns_since(oldest.since) < WAIT_NS) {
            return None;
        }
        self.waiting.pop_front().map(|waiting| waiting.packet)
    }

    /// Number of waiting fragments.
    #[inline]
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }
}

/// Number of datagrams that a worker remembers the target for: the latest ones. A first fragment is
/// forgotten after this many others. With `n` datagrams a second, a later fragment may therefore
/// follow its first within 4,096 / `n` seconds: 4 ms in a flood of a million.
const DATAGRAMS_MAX: usize = 4096;

/// Maximum time that a datagram is remembered, in nanoseconds: a later fragment follows its first
/// within milliseconds.
const REMEMBERED_NS: u64 = 2_000_000_000;

/// Twice the number of datagrams, so that most buckets have at most one.
const BUCKET_COUNT: usize = 2 * DATAGRAMS_MAX;

/// The latest first fragments.
///
/// Each entry has a number, in order of arrival, and the number's slot in a ring: the next entry in
/// that slot evicts it. The entries of a bucket form a chain from the latest to the oldest. A chain
/// ends at a number that is no longer in the ring, so evicting an entry doesn't touch its chain.
#[derive(Debug)]
pub struct FirstFragments {
    /// The ring: the slot of a number is `number % DATAGRAMS_MAX`.
    ring: Box<[First]>,
    /// The number of the latest entry of each bucket.
    latest: Box<[u64]>,
    /// The number of the next entry. Invariant: above [`DATAGRAMS_MAX`], so that 0 is never an
    /// entry's number.
    next: u64,
    /// Secret, so that an attacker can't choose datagrams of one bucket.
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct First {
    datagram: FragmentId,
    target: TargetId,
    since: Instant,
    /// The number of the previous entry in the same bucket.
    previous: u64,
}

impl FirstFragments {
    /// An empty table. Allocates all of its memory.
    pub fn new() -> Self {
        let target = TargetId { slot: 0, generation: 0 };
        let any = Ipv4Addr::UNSPECIFIED.into();
        let (datagram, since) = (FragmentId::new(any, any, 0, 0), Instant::from_ns(0));
        let none = First { datagram, target, since, previous: 0 };
        Self {
            ring: vec![none; DATAGRAMS_MAX].into(),
            latest: vec![0; BUCKET_COUNT].into(),
            next: DATAGRAMS_MAX as u64 + 1,
            hasher: RandomState::new(),
        }
    }

    /// Records that the first fragment of the datagram went to `target` now, in place of the oldest
    /// entry.
    pub fn remember(&mut self, datagram: FragmentId, target: TargetId, now: Instant) {
        let bucket = self.bucket(datagram);
        // A datagram that comes again takes a new slot and leaves its old position in the chain, so
        // no chain has a datagram twice, however often it comes.
        self.unlink(bucket, datagram);
        let number = self.next;
        let previous = self.latest[bucket];
        self.ring[place(number)] = First { datagram, target, since: now, previous };
        self.latest[bucket] = number;
        self.next += 1;
    }

    /// The target of the datagram's first fragment, if it is remembered.
    pub fn target(&self, datagram: FragmentId, now: Instant) -> Option<TargetId> {
        let mut firsts = self.chain(self.bucket(datagram)).map(|number| &self.ring[place(number)]);
        let first = firsts.find(|first| first.datagram == datagram)?;
        (now.ns_since(first.since) <= REMEMBERED_NS).then_some(first.target)
    }

    fn bucket(&self, datagram: FragmentId) -> usize {
        self.hasher.hash_one(datagram.words()) as usize % BUCKET_COUNT
    }

    /// The numbers of a bucket's datagrams that are in the ring, latest first.
    fn chain(&self, bucket: usize) -> impl Iterator<Item = u64> {
        let in_ring = |number: u64| (self.next - number <= DATAGRAMS_MAX as u64).then_some(number);
        iter::successors(in_ring(self.latest[bucket]), move |number| {
            in_ring(self.ring[place(*number)].previous)
        })
    }

    /// Takes a datagram out of its chain, if it is there.
    fn unlink(&mut self, bucket: usize, datagram: FragmentId) {
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

/// The index of a number in the ring.
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

    /// A distinct datagram for each number.
    fn numbered(number: u64) -> FragmentId {
        let any = Ipv4Addr::UNSPECIFIED.into();
        FragmentId::new(any, any, 0, number as u32)
    }

    /// Compares with a list, latest last: for few datagrams that repeat, and for more datagrams
    /// than there is room for.
    #[test]
    fn finds_what_a_list_finds() {
        for (seed, datagram_count) in [(1, 40), (2, 4_096), (3, 6_000), (4, 100_000)] {
            let mut rng = Rng::seeded(seed);
            let (mut firsts, mut list, mut now) = (FirstFragments::new(), VecDeque::new(), 0);
            for step in 0..30_000 {
                now += rng.below(800_000);
                let datagram = numbered(rng.below(datagram_count));
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

    /// However often one datagram comes, the others are found at once.
    #[test]
    fn no_chain_has_a_datagram_twice() {
        let (mut firsts, now) = (FirstFragments::new(), Instant::from_ns(0));
        for count in 0..10_000 {
            firsts.remember(numbered(count % 3), target(0), now);
        }
        let lengths = (0..BUCKET_COUNT).map(|bucket| firsts.chain(bucket).count());
        assert_eq!(lengths.sum::<usize>(), 3);
    }
}
