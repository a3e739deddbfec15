//! The known neighbours, shared by all cores without a lock.

use crate::asked::Asked;
use crate::claim::{Claim, Kind, is_forbidden};
use crate::entry::{BY_SYSTEM_NS, Entry, REFRESH_NS, Snapshot, Station};
use crate::key::{Key, LinkId};
use crate::link::{Link, NextHop, Question};
use hotloop_packet::ethernet::MacAddress;
use hotloop_stage::Instant;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The number of slots for an address.
const SET_LEN: usize = 8;

/// A neighbour with a known Ethernet address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Neighbour {
    /// The neighbour's link.
    pub link: LinkId,
    /// The neighbour's IP address.
    pub address: IpAddr,
    /// The neighbour's Ethernet address.
    pub mac: MacAddress,
    /// When the neighbour last answered.
    pub confirmed: Instant,
    /// The certainty of the Ethernet address.
    pub state: NeighbourState,
    /// Whether it states that it is a router (RFC 4861, section 4.4).
    pub is_router: bool,
    /// The station that was last [doubted](Lesson::Doubted) when it claimed the address, and the number of
    /// such claims, modulo 65,536.
    pub claimed_by: Option<(MacAddress, u16)>,
}

/// The certainty of a neighbour's Ethernet address (RFC 4861, section 7.3.2). The address is used
/// in every state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NeighbourState {
    /// The neighbour answered within 30 seconds.
    Reachable,
    /// The neighbour has not answered for 30 seconds; the next packet causes a question.
    Stale,
    /// The neighbour is being asked, since it has not answered for 30 seconds, or another station
    /// claims its address.
    Probing,
    /// The system has set it.
    System,
}

impl fmt::Display for NeighbourState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reachable => "reachable",
            Self::Stale => "stale",
            Self::Probing => "probing",
            Self::System => "system",
        })
    }
}

/// The lesson from a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lesson {
    /// Nothing: the frame is neither ARP nor neighbour discovery, or contains nothing new about a
    /// neighbour.
    Nothing,
    /// Nothing: the frame claims a neighbour's address and is not believed.
    Refused,
    /// Another station claims a neighbour's address: the neighbour will be asked whether it is
    /// still there.
    Doubted,
    /// A neighbour has answered, and its Ethernet address is unchanged.
    Confirmed,
    /// A neighbour has become known.
    Learned,
    /// A neighbour has another Ethernet address.
    Changed,
}

/// The neighbours of a network function. All cores read the table and any core may write it, and
/// no core waits for another: a core that finds a slot in the middle of a write treats its address as
/// unknown.
///
/// A requested address gets a slot, and an address that answered keeps its own for a minute after
/// its last answer; after half of that it is requested again. If no slot is left, an address that
/// has not answered makes room. So packets to addresses without a station cannot displace addresses
/// that answer.
///
/// # What is believed
///
/// - A neighbour belongs to a [`Link`]: frames from other links have no effect on it. Nor do frames
///   to other stations, and frames that RFC 826, RFC 5227, or RFC 4861, section 7.1, forbids.
/// - An address that was not asked for is never learned.
/// - An unknown address is learned from the answer to a question, or from a request for the
///   station's own address while there is no answer.
/// - A known address is confirmed only by its own station's answer. When another station claims it,
///   in an answer, request or announcement, nothing changes, whatever its override flag: the
///   neighbour itself is asked by its Ethernet address, twice within 0.8 seconds, and packets go on
///   to it. Only if it is silent, all stations are asked, and the first that answers has the
///   address then. So the successor of a gateway that announces itself is in use about a second
///   later.
///
/// Neither protocol proves anything: a station on the same link can answer for a neighbour that is
/// silent.
#[derive(Debug)]
pub struct Neighbours {
    entries: Box<[Entry]>,
    /// Random, so that no sender can choose addresses that share their slots.
    seeds: [u64; 2],
    change_count: AtomicU64,
    /// Whether the system has untaken requests.
    has_requests: AtomicBool,
}

impl Neighbours {
    /// Makes room for `capacity` neighbours, rounded up to a power of two, and at least 8. Takes 64
    /// bytes for each.
    #[must_use]
    pub fn new(capacity: usize) -> Arc<Self> {
        let count = capacity.next_power_of_two().max(SET_LEN);
        let entries = (0..count).map(|_| Entry::default()).collect();
        let random = RandomState::new();
        let seeds = [0, 1].map(|number: u8| random.hash_one(number) | 1);
        let (change_count, has_requests) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { entries, seeds, change_count, has_requests })
    }

    /// The Ethernet address of a neighbour. `None` if it isn't known, or has not answered for a minute.
    #[must_use]
    pub fn mac(&self, link: LinkId, address: IpAddr, now: Instant) -> Option<MacAddress> {
        self.find(Key::new(link, address)).find_map(|(_, seen)| seen.mac(now))
    }

    /// The entry of a neighbour. `None` as for [`mac`](Self::mac).
    #[must_use]
    pub fn get(&self, link: LinkId, address: IpAddr, now: Instant) -> Option<Neighbour> {
        let mut found = self.find(Key::new(link, address));
        found.find_map(|(entry, seen)| neighbour(entry, &seen, now))
    }

    /// The known neighbours.
    #[must_use]
    pub fn known(&self, now: Instant) -> Vec<Neighbour> {
        let entries = self.entries.iter().filter_map(|entry| Some((entry, entry.read()?)));
        entries.filter_map(|(entry, seen)| neighbour(entry, &seen, now)).collect()
    }

    /// Sets the Ethernet address of one of the system's neighbours. It stays until it is set again
    /// or [forgotten](Self::forget), whatever is received or [learned](Self::learn) about it.
    pub fn set(&self, address: IpAddr, mac: MacAddress) {
        self.learn(LinkId::SYSTEM, address, mac, Instant::from_ns(BY_SYSTEM_NS));
    }

    /// Makes a neighbour of the system's unknown.
    pub fn forget(&self, address: IpAddr) {
        for (entry, seen) in self.find(Key::new(LinkId::SYSTEM, address)) {
            entry.write(seen, Snapshot { station: Station::default(), confirmed_ns: 0, ..seen });
        }
    }

    /// The addresses that packets wait for, or that should be asked again, since the last call: for
    /// a system that asks for them ([`NextHop::of_system`]). Without such addresses, it costs one read.
    #[must_use]
    pub fn take_requests(&self) -> Vec<IpAddr> {
        if !self.has_requests.load(Relaxed) || !self.has_requests.swap(false, Acquire) {
            return Vec::new();
        }
        let requested = self.entries.iter().filter(|entry| {
            entry.is_requested.load(Relaxed) && entry.is_requested.swap(false, Relaxed)
        });
        let seen = requested.filter_map(Entry::read).map(|seen| seen.key);
        seen.filter(|key| key.link == LinkId::SYSTEM).map(|key| key.address()).collect()
    }

    /// Sets a neighbour's Ethernet address, from a trusted source.
    pub fn learn(&self, link: LinkId, address: IpAddr, mac: MacAddress, now: Instant) {
        let (key, station) = (Key::new(link, address), Station::new(mac));
        let mut is_there = false;
        for (entry, seen) in self.find(key) {
            is_there = true;
            if seen.confirmed_ns != BY_SYSTEM_NS || now.as_ns() == BY_SYSTEM_NS {
                self.adopt(entry, seen, station, now);
            }
        }
        if !is_there && let Some((entry, seen)) = self.insert(key, true, now) {
            self.adopt(entry, seen, station, now);
        }
    }

    /// Learns from a frame from this link: see [what is believed](Self#what-is-believed). Any frame
    /// may be passed.
    pub fn learn_from(&self, link: &Link, frame: &[u8], now: Instant) -> Lesson {
        let Some(claim) = Claim::of(link, frame) else {
            let is_forbidden = link.address.is_ipv6() && is_forbidden(frame);
            return if is_forbidden { Lesson::Refused } else { Lesson::Nothing };
        };
        let mut lesson = Lesson::Nothing;
        for (entry, seen) in self.find(claim.key) {
            lesson = judge(&claim, &seen, Asked(entry.asked.load(Relaxed)), now);
            if !self.follow(lesson, &claim, entry, seen, now) {
                lesson = Lesson::Nothing;
            }
        }
        lesson
    }

    /// The question that should be asked now to find or keep this neighbour. No other caller gets
    /// it for some time: the caller [writes](NextHop::write_question) and sends it. `None` if no
    /// question is due.
    #[must_use]
    pub fn question(&self, next_hop: &NextHop, now: Instant) -> Option<Question> {
        let found = self.find(next_hop.key).next();
        let (entry, seen) = found.or_else(|| self.insert(next_hop.key, false, now))?;
        let asked = entry.asked.load(Relaxed);
        let (question, next) = Asked(asked).next(seen.mac(now), now)?;
        entry.asked.compare_exchange(asked, next.0, Relaxed, Relaxed).ok()?;
        if next_hop.link() == LinkId::SYSTEM {
            entry.is_requested.store(true, Relaxed);
            self.has_requests.store(true, Release);
        }
        Some(question)
    }

    /// The Ethernet address, and whether the neighbour should be asked again.
    #[inline]
    pub(crate) fn lookup(&self, key: Key, now: Instant) -> Option<(MacAddress, bool)> {
        self.find(key).find_map(|(_, seen)| {
            let should_ask = seen.station.is_doubted() || seen.is_older(REFRESH_NS, now);
            Some((seen.mac(now)?, should_ask))
        })
    }

    /// Number of times that a neighbour became known or changed its Ethernet address.
    #[inline]
    pub(crate) fn change_count(&self) -> u64 {
        self.change_count.load(Acquire)
    }

    /// The slots that an address may use.
    #[inline]
    fn places(&self, key: Key) -> &[Entry] {
        let set_count = self.entries.len() / SET_LEN;
        // The number of sets is a power of two.
        let first = (key.hash(&self.seeds) as usize & (set_count - 1)) * SET_LEN;
        &self.entries[first..first + SET_LEN]
    }

    #[inline]
    fn find(&self, key: Key) -> impl Iterator<Item = (&Entry, Snapshot)> {
        self.places(key).iter().filter_map(move |entry| Some((entry, entry.read_of(key)?)))
    }

    /// Applies a lesson. Returns whether it did: another core may have been faster.
    fn follow(
        &self,
        lesson: Lesson,
        claim: &Claim,
        entry: &Entry,
        seen: Snapshot,
        now: Instant,
    ) -> bool {
        let station = claim.mac.map_or(seen.station, Station::new);
        let is_request = claim.kind == Kind::Request;
        let station = station.router(claim.is_router == Some(true)).doubted(is_request);
        match lesson {
            Lesson::Nothing | Lesson::Refused => true,
            Lesson::Doubted => {
                let station = seen.station.doubted(true);
                let is_written = entry.write(seen, Snapshot { station, ..seen });
                if is_written && let Some(mac) = claim.mac {
                    entry.note_claim(Station::new(mac));
                }
                is_written
            }
            Lesson::Confirmed | Lesson::Learned | Lesson::Changed => {
                self.adopt(entry, seen, station, now)
            }
        }
    }

    /// Stores the new Ethernet address of the neighbour in its slot. Returns whether it did.
    fn adopt(&self, entry: &Entry, seen: Snapshot, station: Station, now: Instant) -> bool {
        let is_change = seen.mac(now) != station.mac();
        let new = Snapshot { station, confirmed_ns: now.as_ns(), ..seen };
        if !entry.write(seen, new) {
            return false;
        }
        let answered = |asked| Some(Asked(asked).answered(now).0);
        let _ = entry.asked.fetch_update(Relaxed, Relaxed, answered);
        if is_change {
            self.change_count.fetch_add(1, Release);
        }
        true
    }

    /// Finds a slot for an address. An unknown address never takes the slot of a known one.
    fn insert(&self, key: Key, is_known: bool, now: Instant) -> Option<(&Entry, Snapshot)> {
        let seen = self.places(key).iter().filter_map(|entry| Some((entry, entry.read()?)));
        let rank =
            |seen: &Snapshot| (!seen.key.is_free(), seen.mac(now).is_some(), seen.confirmed_ns);
        let (entry, seen) = seen.min_by_key(|(_, seen)| rank(seen))?;
        if !is_known && seen.mac(now).is_some() {
            return None;
        }
        let station = Station::default();
        let new = Snapshot { key, station, confirmed_ns: now.as_ns(), ..seen };
        if !entry.write(seen, new) {
            return None;
        }
        entry.begin();
        Some((entry, entry.read_of(key)?))
    }
}

fn neighbour(entry: &Entry, seen: &Snapshot, now: Instant) -> Option<Neighbour> {
    let asked = Asked(entry.asked.load(Relaxed));
    let is_old = seen.is_older(REFRESH_NS, now);
    let state = if seen.confirmed_ns == BY_SYSTEM_NS {
        NeighbourState::System
    } else if seen.station.is_doubted() || is_old && asked.is_open(now) {
        NeighbourState::Probing
    } else if is_old {
        NeighbourState::Stale
    } else {
        NeighbourState::Reachable
    };
    let (link, address) = (seen.key.link, seen.key.address());
    let confirmed = Instant::from_ns(seen.confirmed_ns);
    let (mac, is_router, claimed_by) = (seen.mac(now)?, seen.station.is_router(), entry.claims());
    Some(Neighbour { link, address, mac, confirmed, state, is_router, claimed_by })
}

/// The lesson of a claim about a neighbour, from the present entry and the open questions.
fn judge(claim: &Claim, seen: &Snapshot, asked: Asked, now: Instant) -> Lesson {
    let is_answer = claim.kind == Kind::Answer && asked.is_open(now);
    let Some(known) = seen.mac(now) else {
        let is_believed = is_answer || claim.kind == Kind::Request && asked.is_open(now);
        return match claim.mac {
            Some(mac) if is_believed && seen.station.mac().is_some_and(|before| before != mac) => {
                Lesson::Changed
            }
            Some(_) if is_believed => Lesson::Learned,
            _ => Lesson::Refused,
        };
    };
    match claim.mac {
        // RFC 4861, section 7.2.5: without an address, the claim is the known station's.
        None | Some(_) if claim.mac.is_none_or(|mac| mac == known) => {
            if is_answer {
                Lesson::Confirmed
            } else {
                Lesson::Nothing
            }
        }
        _ if claim.kind == Kind::Invalid => Lesson::Refused,
        // The neighbour has not answered, so any station may.
        _ if is_answer && asked.is_to_all(now) => Lesson::Changed,
        _ if seen.station.is_doubted() => Lesson::Refused,
        _ => Lesson::Doubted,
    }
}
