//! The neighbours that are known, shared by all cores without a lock.

use crate::Instant;
use hotloop_packet::arp::ArpMessage;
use hotloop_packet::ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV6, MacAddress};
use hotloop_packet::nd::NdMessage;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

/// How long a neighbour is used without asking it again (RFC 4861, section 10: REACHABLE_TIME).
const REFRESH_NS: u64 = 30_000_000_000;

/// How long a neighbour is used that no longer answers.
const EXPIRY_NS: u64 = 60_000_000_000;

/// The time between two requests for one address (RFC 4861, section 10: RETRANS_TIMER).
const REQUEST_NS: u64 = 1_000_000_000;

/// The number of places that an address may have.
const SET_LEN: usize = 8;

/// When a neighbour was confirmed that is the system's to confirm.
const BY_SYSTEM_NS: u64 = u64::MAX;

/// In the word that holds an Ethernet address: there is one.
const KNOWN: u64 = 1 << 48;

/// A neighbour that answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Neighbour {
    /// Its IP address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// When it last answered.
    pub confirmed: Instant,
}

/// The neighbours of a network function. All cores read it and any of them writes it, none waits for
/// another: a core that meets a place which is just being written takes its address for unknown.
///
/// A requested address takes a place, and an address that answered keeps its own for a minute after its
/// last answer; after half of that it is requested again. Where no place is left, one that has not
/// answered makes room. So senders of packets to addresses where there is nothing cannot displace
/// those that answer.
#[derive(Debug)]
pub struct Neighbours {
    entries: Box<[Entry]>,
    /// Random, so that no sender can choose addresses that share their places.
    seeds: [u64; 2],
    change_count: AtomicU64,
    /// Whether any place is requested that was not taken yet.
    has_requests: AtomicBool,
}

/// A place. `version` is odd while it is being written, and moves on with every write.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Entry {
    version: AtomicU64,
    key: [AtomicU64; 2],
    mac: AtomicU64,
    confirmed_ns: AtomicU64,
    /// When the next request is due. Not covered by the version.
    due_ns: AtomicU64,
    /// Whether it was requested since requests were taken. Not covered either.
    is_requested: AtomicBool,
}

/// What a place held at one time.
#[derive(Clone, Copy)]
struct Snapshot {
    version: u64,
    key: u128,
    mac: u64,
    confirmed_ns: u64,
}

impl Snapshot {
    const fn is_known(&self, now: Instant) -> bool {
        self.mac & KNOWN != 0 && !self.is_older(EXPIRY_NS, now)
    }

    const fn is_older(&self, age_ns: u64, now: Instant) -> bool {
        now.as_ns().saturating_sub(self.confirmed_ns) >= age_ns
    }

    fn address(self) -> IpAddr {
        Ipv6Addr::from_bits(self.key).to_canonical()
    }

    const fn mac(&self) -> MacAddress {
        let [.., a, b, c, d, e, f] = self.mac.to_be_bytes();
        MacAddress::new([a, b, c, d, e, f])
    }
}

impl Entry {
    fn read(&self) -> Option<Snapshot> {
        let version = self.version.load(Acquire);
        let word = |word: &AtomicU64| u128::from(word.load(Relaxed));
        let key = word(&self.key[0]) << 64 | word(&self.key[1]);
        let (mac, confirmed_ns) = (self.mac.load(Relaxed), self.confirmed_ns.load(Relaxed));
        // The loads above come before the second look at the version.
        fence(Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Relaxed) == version;
        is_whole.then_some(Snapshot { version, key, mac, confirmed_ns })
    }

    /// Writes the place unless it has changed since it was seen. Returns whether it did.
    fn write(&self, seen: Snapshot, new: Snapshot) -> bool {
        let version = seen.version.wrapping_add(1);
        if self.version.compare_exchange(seen.version, version, Relaxed, Relaxed).is_err() {
            return false;
        }
        // The stores below come after the odd version.
        fence(Release);
        self.key[0].store((new.key >> 64) as u64, Relaxed);
        self.key[1].store(new.key as u64, Relaxed);
        self.mac.store(new.mac, Relaxed);
        self.confirmed_ns.store(new.confirmed_ns, Relaxed);
        self.version.store(version.wrapping_add(1), Release);
        true
    }
}

impl Neighbours {
    /// Room for `capacity` neighbours, rounded up to a power of two, and at least 8. It takes 64 bytes
    /// for each.
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
    pub fn mac(&self, address: IpAddr, now: Instant) -> Option<MacAddress> {
        self.lookup(address, now).map(|(mac, _)| mac)
    }

    /// Notes that the system says that a neighbour has this Ethernet address: it does until it is set
    /// again or [forgotten](Self::forget), whatever is received or [learnt](Self::learn) of it.
    pub fn set(&self, address: IpAddr, mac: MacAddress) {
        self.learn(address, mac, Instant::from_ns(BY_SYSTEM_NS));
    }

    /// Takes a neighbour for unknown from now on.
    pub fn forget(&self, address: IpAddr) {
        for (entry, seen) in self.find(key_of(address)) {
            entry.write(seen, Snapshot { mac: 0, confirmed_ns: 0, ..seen });
        }
    }

    /// The addresses that packets wait for, or that should be asked again, since the last call: for a
    /// system that asks for them ([`NextHop::of_system`](super::NextHop::of_system)). It is one read where
    /// there are none.
    #[must_use]
    pub fn take_requests(&self) -> Vec<IpAddr> {
        if !self.has_requests.load(Relaxed) || !self.has_requests.swap(false, Acquire) {
            return Vec::new();
        }
        let requested = self.entries.iter().filter(|entry| {
            entry.is_requested.load(Relaxed) && entry.is_requested.swap(false, Relaxed)
        });
        requested
            .filter_map(Entry::read)
            .filter(|seen| seen.key != 0)
            .map(Snapshot::address)
            .collect()
    }

    /// Notes that a neighbour has this Ethernet address: it answered.
    pub fn learn(&self, address: IpAddr, mac: MacAddress, now: Instant) {
        if !self.confirm(address, mac, now) {
            self.insert(address, mac_word(mac), now);
        }
    }

    /// Notes the neighbour that an ARP message, a neighbour solicitation or an advertisement makes known,
    /// if its address was asked for. Returns whether it was.
    pub fn learn_from(&self, frame: &[u8], now: Instant) -> bool {
        let neighbour = match ethernet::network_layer(frame) {
            Some((ETHERTYPE_ARP, _)) => ArpMessage::of_frame(frame)
                .map(ArpMessage::sender)
                .map(|sender| (IpAddr::from(sender.address), sender.mac)),
            Some((ETHERTYPE_IPV6, _)) => NdMessage::of_frame(frame)
                .and_then(|message| message.neighbour())
                .map(|(address, mac)| (IpAddr::from(address), mac)),
            _ => None,
        };
        neighbour
            .filter(|(address, mac)| !mac.is_multicast() && !address.is_unspecified())
            .is_some_and(|(address, mac)| self.confirm(address, mac, now))
    }

    /// The neighbours that are known.
    #[must_use]
    pub fn known(&self, now: Instant) -> Vec<Neighbour> {
        let entries = self.entries.iter().filter_map(Entry::read);
        let known = entries.filter(|entry| entry.is_known(now)).map(|entry| Neighbour {
            address: entry.address(),
            mac: entry.mac(),
            confirmed: Instant::from_ns(entry.confirmed_ns),
        });
        known.collect()
    }

    /// The Ethernet address, and whether the neighbour should be asked again.
    #[inline]
    pub(super) fn lookup(&self, address: IpAddr, now: Instant) -> Option<(MacAddress, bool)> {
        let (_, entry) = self.find(key_of(address)).find(|(_, entry)| entry.is_known(now))?;
        Some((entry.mac(), entry.is_older(REFRESH_NS, now)))
    }

    /// Whether a request for this address is due. The caller sends it: for a second it is due to nobody
    /// else.
    pub(super) fn claim_request(&self, address: IpAddr, now: Instant) -> bool {
        let found = self.find(key_of(address)).next().map(|(entry, _)| entry);
        let Some(entry) = found.or_else(|| self.insert(address, 0, now)) else { return false };
        let due_ns = entry.due_ns.load(Relaxed);
        let next_ns = now.as_ns().saturating_add(REQUEST_NS);
        let is_claimed = now.as_ns() >= due_ns
            && entry.due_ns.compare_exchange(due_ns, next_ns, Relaxed, Relaxed).is_ok();
        if is_claimed {
            entry.is_requested.store(true, Relaxed);
            self.has_requests.store(true, Release);
        }
        is_claimed
    }

    /// How often a neighbour became known or changed its Ethernet address.
    #[inline]
    pub(super) fn change_count(&self) -> u64 {
        self.change_count.load(Acquire)
    }

    /// The places that an address may have.
    fn places(&self, key: u128) -> &[Entry] {
        let set_count = self.entries.len() / SET_LEN;
        let halves = [(key >> 64) as u64 ^ self.seeds[0], key as u64 ^ self.seeds[1]];
        let product = u128::from(halves[0]) * u128::from(halves[1]);
        let hash = (product >> 64) as u64 ^ product as u64;
        // The count of sets is a power of two.
        let first = (hash as usize & (set_count - 1)) * SET_LEN;
        &self.entries[first..first + SET_LEN]
    }

    fn find(&self, key: u128) -> impl Iterator<Item = (&Entry, Snapshot)> {
        let entries = self.places(key).iter().filter_map(|entry| Some((entry, entry.read()?)));
        entries.filter(move |(_, seen)| seen.key == key)
    }

    /// Confirms an address that has a place. Returns whether it has one.
    fn confirm(&self, address: IpAddr, mac: MacAddress, now: Instant) -> bool {
        let mac = mac_word(mac);
        let mut is_there = false;
        for (entry, seen) in self.find(key_of(address)) {
            is_there = true;
            if seen.confirmed_ns == BY_SYSTEM_NS && now.as_ns() != BY_SYSTEM_NS {
                continue;
            }
            let is_change = seen.mac != mac || !seen.is_known(now);
            let new = Snapshot { mac, confirmed_ns: now.as_ns(), ..seen };
            if entry.write(seen, new) && is_change {
                self.change_count.fetch_add(1, Release);
            }
        }
        is_there
    }

    /// Gives an address a place. One that isn't known takes none from one that is.
    fn insert(&self, address: IpAddr, mac: u64, now: Instant) -> Option<&Entry> {
        let key = key_of(address);
        let seen = self.places(key).iter().filter_map(|entry| Some((entry, entry.read()?)));
        let rank = |seen: &Snapshot| (seen.key != 0, seen.is_known(now), seen.confirmed_ns);
        let (entry, seen) = seen.min_by_key(|(_, seen)| rank(seen))?;
        if mac == 0 && seen.is_known(now) {
            return None;
        }
        let new = Snapshot { key, mac, confirmed_ns: now.as_ns(), ..seen };
        if !entry.write(seen, new) {
            return None;
        }
        entry.due_ns.store(0, Relaxed);
        if mac != 0 {
            self.change_count.fetch_add(1, Release);
        }
        Some(entry)
    }
}

/// An IPv4 address as IPv6 maps it. No neighbour has the address `::`, which marks a free place.
const fn key_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

const fn mac_word(mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac.bytes();
    KNOWN | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}
