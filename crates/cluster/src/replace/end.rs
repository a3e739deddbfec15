//! Both ends of a link of two programs, each as a node with the other end as its only peer. No
//! sockets and no clocks: bytes and times come from outside, so that a simulation runs the same code.

use crate::sync::wire::{FRAME_BYTES_MAX, Message, decode};
use crate::sync::{Local, PeerId, PeerStatus, Peers, Walk};
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::exception_mover::{ExceptionMover, Pulled};
use hotloop_balancer::exceptions::{Change, Record};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Number of bytes of frames to make at once.
const OUTPUT_BYTES: usize = 2 * FRAME_BYTES_MAX;

/// Number of changes to take at once.
const IMPORTS_MAX: usize = 4096;

/// The names of both ends, in order: the first of two nodes connects.
const SUCCESSOR: &str = "successor";
const PREDECESSOR: &str = "the-running-one";

/// One end.
#[derive(Debug)]
pub struct End {
    peers: Peers,
    peer: PeerId,
    is_greeted: bool,
    is_successor: bool,
    /// The greeting, until it is sent.
    greeting: Vec<u8>,
    /// Received frames that are incomplete.
    frames: Vec<u8>,
    now_ms: u64,
}

impl End {
    fn new(own: &str, other: &str) -> Self {
        // There is one of each, so nothing else must be distinguished.
        let local = Local { node: own.into(), digest: [0; 16] };
        let peers = Peers::new(local, [(other.to_owned(), String::new())]);
        let peer = peers.named(other).expect("it is the only one");
        let is_successor = own == SUCCESSOR;
        let (mut greeting, frames) = (Vec::new(), Vec::new());
        if is_successor {
            peers.hello(&mut greeting);
        }
        Self { peers, peer, is_greeted: false, is_successor, greeting, frames, now_ms: 0 }
    }

    /// Sets the time.
    pub const fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// The status of the other end.
    #[must_use]
    pub fn status(&self) -> PeerStatus {
        self.peers.status(self.now_ms).remove(0)
    }

    /// The bytes that are due to the other end.
    pub fn output(&mut self) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.greeting);
        if self.is_greeted {
            self.peers.output(self.peer, &mut out, OUTPUT_BYTES, self.now_ms);
        }
        out
    }

    /// Takes bytes of the other end.
    ///
    /// # Errors
    /// The reason that the link is over.
    pub fn input(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.frames.extend_from_slice(bytes);
        let frames = std::mem::take(&mut self.frames);
        let mut used = 0;
        while let Some((frame, length)) =
            decode(&frames[used..], FRAME_BYTES_MAX).map_err(|error| error.to_string())?
        {
            used += length;
            if self.is_greeted {
                self.peers.input(self.peer, &frame, self.now_ms)?;
                continue;
            }
            let Message::Hello(hello) = &frame.message else {
                return Err("it did not greet first".into());
            };
            let expected = self.is_successor.then_some(self.peer);
            self.peers.greet(hello, expected, self.now_ms)?;
            if !self.is_successor {
                self.peers.hello(&mut self.greeting);
            }
            self.is_greeted = true;
        }
        self.frames = frames[used..].to_vec();
        Ok(())
    }
}

/// The predecessor's end: what it knows is for its successor.
#[derive(Debug)]
pub struct Bequest {
    /// The end.
    pub end: End,
    /// The snapshot that is being collected.
    walk: Option<Walk>,
}

impl Default for Bequest {
    fn default() -> Self {
        Self { end: End::new(PREDECESSOR, SUCCESSOR), walk: None }
    }
}

impl Bequest {
    /// Whether a walk for the successor is under way.
    #[must_use]
    pub const fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Begins the walk that the successor needs, and pauses the walk without room: call this before
    /// each turn of `exceptions`.
    pub fn follow_walk(&mut self, exceptions: &mut ExceptionMover) {
        let End { peers, now_ms, .. } = &mut self.end;
        let room = self.walk.and_then(|walk| peers.has_room_for(walk));
        if room.is_none() {
            // The walk would miss claims on their way to workers, which the successor does not get either.
            let may_begin = exceptions.has_entered_all();
            self.walk = if may_begin { peers.snapshot_wanted(*now_ms) } else { None };
            if self.walk.is_some() {
                exceptions.begin_walk();
            }
        }
        exceptions.hold_walk(room == Some(false));
    }

    /// Queues claims.
    pub fn offer(&mut self, claims: &[Record]) {
        self.end.peers.offer(claims, self.end.now_ms);
    }

    /// Queues the workers' findings.
    pub fn take(&mut self, pulled: Pulled<'_>) {
        match (pulled, self.walk) {
            (Pulled::Changes(claims), _) => self.offer(claims),
            (Pulled::Exceptions(claims), Some(walk)) => {
                self.end.peers.give_page(walk, claims, false, self.end.now_ms);
            }
            (Pulled::Exceptions(_), None) => {}
        }
    }

    /// Begins again if changes were lost, and ends a completed walk: call this after each turn of
    /// `exceptions`.
    pub fn end_walk(&mut self, is_walking: bool, has_lost: bool) {
        if has_lost {
            self.end.peers.resync();
        } else if !is_walking && let Some(walk) = self.walk.take() {
            self.end.peers.give_page(walk, &[], true, self.end.now_ms);
        }
    }
}

/// The successor's end, with the connections that the predecessor has reported.
#[derive(Debug)]
pub struct Legacy {
    /// The end.
    pub end: End,
    known: HashMap<FlowKey, (Record, u64)>,
    taken: Vec<Change>,
}

impl Default for Legacy {
    fn default() -> Self {
        let end = End::new(SUCCESSOR, PREDECESSOR);
        Self { end, known: HashMap::new(), taken: Vec::new() }
    }
}

impl Legacy {
    /// Records everything that has come.
    pub fn learn(&mut self) {
        let now_ms = self.end.now_ms;
        while self.end.peers.take_imports(&mut self.taken, IMPORTS_MAX) && !self.taken.is_empty() {
            for change in self.taken.drain(..) {
                let Change::Claim(record) = change else { continue };
                let known = self.known.entry(record.key).or_insert((record, now_ms));
                if counts_more(&record, &known.0.later(now_ms - known.1)) {
                    *known = (record, now_ms);
                }
            }
        }
    }

    /// The keys of the connections, in no particular order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &FlowKey> {
        self.known.keys()
    }

    /// The connections, with their times as of now. Those that have timed out meanwhile are not among
    /// them: other connections may have begun in their places.
    pub fn connections(&mut self) -> Vec<Change> {
        let now_ms = self.end.now_ms;
        let known = std::mem::take(&mut self.known).into_values();
        let known = known.map(|(record, since_ms)| record.later(now_ms - since_ms));
        known.filter(|record| record.left_ms > 0).map(Change::Claim).collect()
    }
}

/// Whether a claim replaces one that came before it. The predecessor passes on its peers' claims before its
/// workers have decided on them as [`Known`](hotloop_agreement::Known) does, and peers may know less of the
/// connection.
fn counts_more(claim: &Record, before: &Record) -> bool {
    let rank = |it: &Record| (it.birth, Reverse(it.backend), it.state.stage(), it.left_ms);
    before.left_ms == 0 || rank(claim) > rank(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_agreement::Birth;
    use hotloop_balancer::connection::State;

    fn claim(client: &str, backend: &str, birth: u64, left_ms: u32) -> Record {
        let vip = "203.0.113.10:80".parse().unwrap();
        let key = FlowKey::new(client.parse().unwrap(), vip, 6).unwrap();
        let (backend, birth) = (backend.parse().unwrap(), Birth::new(birth));
        Record { key, backend, state: State::Established, birth, left_ms }
    }

    fn carry(bequest: &mut Bequest, legacy: &mut Legacy) {
        for _ in 0..3 {
            legacy.end.input(&bequest.end.output()).unwrap();
            legacy.learn();
            bequest.end.input(&legacy.end.output()).unwrap();
        }
    }

    /// The connections that a successor knows `passed_ms` after these claims.
    fn known(claims: &[Record], passed_ms: u64) -> Vec<Change> {
        let (mut bequest, mut legacy) = (Bequest::default(), Legacy::default());
        carry(&mut bequest, &mut legacy);
        bequest.walk = bequest.end.peers.snapshot_wanted(0);
        bequest.offer(claims);
        bequest.end_walk(false, false);
        carry(&mut bequest, &mut legacy);
        assert!(legacy.end.status().has_its_snapshot && bequest.end.status().is_caught_up);
        legacy.end.set_now(passed_ms);
        legacy.connections()
    }

    #[test]
    fn of_two_claims_to_a_connection_the_later_one_counts() {
        let earlier = claim("198.51.100.7:4000", "10.0.0.1", 7, 5_000);
        let later = claim("198.51.100.7:4000", "10.0.0.2", 8, 5_000);
        for claims in [[earlier, later], [later, earlier]] {
            assert_eq!(known(&claims, 1_000), [Change::Claim(later.later(1_000))]);
        }
        // Peers know less of it, or have heard of an earlier packet.
        let end = Record { state: State::Closing, left_ms: 1_000, ..later };
        let begin = Record { state: State::Opening, ..later };
        let before = Record { left_ms: 4_000, ..later };
        for [less, more] in [[later, end], [begin, later], [before, later]] {
            for claims in [[less, more], [more, less]] {
                assert_eq!(known(&claims, 0), [Change::Claim(more)]);
            }
        }
    }

    #[test]
    fn a_connection_that_times_out_meanwhile_is_not_taken_over() {
        let claims = [
            claim("198.51.100.7:4000", "10.0.0.1", 7, 1_000),
            claim("198.51.100.8:4000", "10.0.0.1", 7, 5_000),
        ];
        assert_eq!(known(&claims, 1_000), [Change::Claim(claims[1].later(1_000))]);
        assert_eq!(known(&claims, 5_000), []);
    }
}
