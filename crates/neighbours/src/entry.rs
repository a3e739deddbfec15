//! A slot for one neighbour, which cores read and write without a lock.

use crate::key::{Key, LinkId};
use hotloop_packet::ethernet::MacAddress;
use hotloop_stage::Instant;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

/// Time for which a neighbour is used without a question (RFC 4861, section 10: REACHABLE_TIME).
pub(crate) const REFRESH_NS: u64 = 30_000_000_000;

/// Time for which a neighbour is used after it stopped answering.
pub(crate) const EXPIRY_NS: u64 = 60_000_000_000;

/// The confirmation time of a neighbour that the system confirms.
pub(crate) const BY_SYSTEM_NS: u64 = u64::MAX;

/// The Ethernet address of a neighbour, in the low 48 bits, with flags. Zero means unknown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Station(u64);

impl Station {
    const KNOWN: u64 = 1 << 48;
    /// Another station claims to have the address, or this one has only asked for ours.
    const DOUBTED: u64 = 1 << 49;
    /// The station claims to be a router (RFC 4861, section 4.4).
    const ROUTER: u64 = 1 << 50;

    pub const fn new(mac: MacAddress) -> Self {
        let [a, b, c, d, e, f] = mac.bytes();
        Self(Self::KNOWN | u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    pub const fn router(self, is_router: bool) -> Self {
        Self(self.0 & !Self::ROUTER | if is_router { Self::ROUTER } else { 0 })
    }

    pub const fn doubted(self, is_doubted: bool) -> Self {
        Self(self.0 & !Self::DOUBTED | if is_doubted { Self::DOUBTED } else { 0 })
    }

    pub const fn mac(self) -> Option<MacAddress> {
        let [_, _, a, b, c, d, e, f] = self.0.to_be_bytes();
        if self.0 & Self::KNOWN == 0 { None } else { Some(MacAddress::new([a, b, c, d, e, f])) }
    }

    pub const fn is_doubted(self) -> bool {
        self.0 & Self::DOUBTED != 0
    }

    pub const fn is_router(self) -> bool {
        self.0 & Self::ROUTER != 0
    }
}

/// The contents of a slot at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub version: u64,
    pub key: Key,
    pub station: Station,
    pub confirmed_ns: u64,
}

impl Snapshot {
    /// The Ethernet address that packets go to.
    #[inline]
    pub const fn mac(&self, now: Instant) -> Option<MacAddress> {
        if self.is_older(EXPIRY_NS, now) { None } else { self.station.mac() }
    }

    pub const fn is_older(&self, age_ns: u64, now: Instant) -> bool {
        now.as_ns().saturating_sub(self.confirmed_ns) >= age_ns
    }
}

/// A slot. `version` is odd during a write, and grows with every write.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Entry {
    version: AtomicU64,
    address: [AtomicU64; 2],
    station: AtomicU64,
    confirmed_ns: AtomicU64,
    link: AtomicU32,
    /// The state of the [questions](crate::asked::Asked). Not covered by the version.
    pub asked: AtomicU64,
    /// The station that claimed the address last, in the low 48 bits, and how many claims there were. Not
    /// covered either.
    claimed: AtomicU64,
    /// Whether it was asked for since requests were taken. Not covered either.
    pub is_requested: AtomicBool,
}

impl Entry {
    /// The contents, if they belong to this neighbour.
    #[inline]
    pub fn read_of(&self, key: Key) -> Option<Snapshot> {
        // Most slots of a set belong to another neighbour.
        if self.address[1].load(Relaxed) != key.halves[1] {
            return None;
        }
        self.read().filter(|seen| seen.key == key)
    }

    #[inline]
    pub fn read(&self) -> Option<Snapshot> {
        let version = self.version.load(Acquire);
        let halves = [self.address[0].load(Relaxed), self.address[1].load(Relaxed)];
        let key = Key { halves, link: LinkId(self.link.load(Relaxed)) };
        let station = Station(self.station.load(Relaxed));
        let confirmed_ns = self.confirmed_ns.load(Relaxed);
        // The loads above come before the second read of the version.
        fence(Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Relaxed) == version;
        is_whole.then_some(Snapshot { version, key, station, confirmed_ns })
    }

    /// Notes that a station claims the address, and is not believed.
    pub fn note_claim(&self, station: Station) {
        let count = (self.claimed.load(Relaxed) >> 48) + 1;
        self.claimed.store(count << 48 | station.0 & (Station::KNOWN - 1), Relaxed);
    }

    /// The station of the last noted claim, and how many were noted, modulo 65,536.
    pub fn claims(&self) -> Option<(MacAddress, u16)> {
        let claimed = self.claimed.load(Relaxed);
        let mac = Station(claimed | Station::KNOWN).mac()?;
        (claimed != 0).then_some((mac, (claimed >> 48) as u16))
    }

    /// Forgets what was asked and claimed of the neighbour before.
    pub fn begin(&self) {
        self.asked.store(0, Relaxed);
        self.claimed.store(0, Relaxed);
    }

    /// Writes the place unless it has changed since it was seen. Returns whether it did.
    pub fn write(&self, seen: Snapshot, new: Snapshot) -> bool {
        let version = seen.version.wrapping_add(1);
        if self.version.compare_exchange(seen.version, version, Relaxed, Relaxed).is_err() {
            return false;
        }
        // The stores below come after the odd version.
        fence(Release);
        self.address[0].store(new.key.halves[0], Relaxed);
        self.address[1].store(new.key.halves[1], Relaxed);
        self.link.store(new.key.link.0, Relaxed);
        self.station.store(new.station.0, Relaxed);
        self.confirmed_ns.store(new.confirmed_ns, Relaxed);
        self.version.store(version.wrapping_add(1), Release);
        true
    }
}
