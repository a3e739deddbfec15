//! The prefixes of one length: a hash table, immutable, at most half full.

use super::ports::{PortTable, ServiceIndex};
use crate::address::{mask_v4, mask_v6};
use std::net::IpAddr;
use std::ops::BitAnd;

/// An address as a number.
pub trait Bits: Copy + Eq + Default + BitAnd<Output = Self> {
    /// A number whose first `len` bits are set.
    fn mask(len: u8) -> Self;
    /// The number spread over 64 bits, best in the high bits.
    fn spread(self) -> u64;
    /// The bits of an address, if it is of this family.
    fn of(address: IpAddr) -> Option<Self>;
}

/// Odd, and without any order in its bits: 2^64 divided by the golden ratio.
const SPREADER: u64 = 0x9E37_79B9_7F4A_7C15;

#[inline(always)]
pub const fn spread(number: u64) -> u64 {
    let product = number.wrapping_mul(SPREADER);
    (product ^ (product >> 32)).wrapping_mul(SPREADER)
}

impl Bits for u32 {
    fn mask(len: u8) -> Self {
        mask_v4(len)
    }

    #[inline]
    fn spread(self) -> u64 {
        spread(u64::from(self))
    }

    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Some(address.to_bits()),
            IpAddr::V6(_) => None,
        }
    }
}

impl Bits for u128 {
    fn mask(len: u8) -> Self {
        mask_v6(len)
    }

    #[inline]
    fn spread(self) -> u64 {
        let high = ((self >> 64) as u64).wrapping_mul(SPREADER);
        spread(high.rotate_left(32) ^ self as u64)
    }

    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.to_bits()),
        }
    }
}

/// The compiled services of a prefix.
#[derive(Clone, Copy, Debug)]
pub struct Vip {
    /// The prefix's first address.
    pub network: IpAddr,
    /// The services of the TCP ports.
    pub tcp: PortTable,
    /// The services of the UDP ports.
    pub udp: PortTable,
    /// The service of all other protocols.
    pub others: ServiceIndex,
    /// The most specific service.
    pub first: ServiceIndex,
}

/// A [`Vip`] in the form for lookups: 16 bytes for IPv4, 32 for IPv6.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Slot<B> {
    network: B,
    pub tcp: PortTable,
    pub udp: PortTable,
    pub others: ServiceIndex,
}

impl<B: Bits> Slot<B> {
    fn empty() -> Self {
        let (network, others) = (B::default(), ServiceIndex::NONE);
        Self { network, tcp: PortTable::NONE, udp: PortTable::NONE, others }
    }

    /// Every prefix has a service, so a slot in use serves some packets.
    #[inline]
    fn is_empty(&self) -> bool {
        self.tcp == PortTable::NONE
            && self.udp == PortTable::NONE
            && self.others == ServiceIndex::NONE
    }
}

/// The prefixes of one length, in a hash table that is at most half full: a prefix is in the slot
/// of its hash, or in a later one with no empty slot in between.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Level<B> {
    mask: B,
    /// Right shift that turns a hash into a slot number.
    shift: u32,
    slots: Box<[Slot<B>]>,
    /// The most specific service of each slot's prefix: separate, since it is seldom needed.
    firsts: Box<[ServiceIndex]>,
}

impl<B: Bits> Level<B> {
    /// Makes a level of these prefixes of `len` bits, all of this family, no two of the same
    /// network.
    pub fn new(len: u8, vips: &[Vip]) -> Self {
        let count = (2 * vips.len()).next_power_of_two().max(2);
        let mut level = Self {
            mask: B::mask(len),
            shift: u64::BITS - count.ilog2(),
            slots: vec![Slot::empty(); count].into(),
            firsts: vec![ServiceIndex::NONE; count].into(),
        };
        for vip in vips {
            let Some(network) = B::of(vip.network) else { continue };
            let mut at = level.start(network);
            while !level.slots[at].is_empty() {
                at = level.following(at);
            }
            let &Vip { tcp, udp, others, first, .. } = vip;
            level.slots[at] = Slot { network, tcp, udp, others };
            level.firsts[at] = first;
        }
        level
    }

    /// The prefix that contains `address`.
    #[inline]
    pub fn vip(&self, address: B) -> Option<&Slot<B>> {
        self.probe(address).map(|at| &self.slots[at])
    }

    /// The most specific service of the prefix that contains `address`.
    pub fn first(&self, address: B) -> Option<ServiceIndex> {
        self.probe(address).map(|at| self.firsts[at])
    }

    #[inline]
    fn probe(&self, address: B) -> Option<usize> {
        let network = address & self.mask;
        let mut at = self.start(network);
        loop {
            let slot = &self.slots[at];
            if slot.is_empty() {
                return None;
            }
            if slot.network == network {
                return Some(at);
            }
            at = self.following(at);
        }
    }

    #[inline]
    fn start(&self, network: B) -> usize {
        (network.spread() >> self.shift) as usize
    }

    #[inline]
    const fn following(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// All services that packets find without reading their ports.
    pub fn services(&self) -> impl Iterator<Item = ServiceIndex> {
        self.slots.iter().flat_map(|slot| [slot.tcp.whole(), slot.udp.whole(), slot.others])
    }

    /// The level's memory, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of_val(&*self.firsts)
    }

    /// Number of slots that a lookup of `address` reads.
    #[cfg(test)]
    pub fn probe_count(&self, address: B) -> usize {
        let network = address & self.mask;
        let start = self.start(network);
        let at = (0..self.slots.len()).map(|step| (start + step) & (self.slots.len() - 1));
        let seen = at.take_while(|at| {
            let slot = &self.slots[*at];
            !slot.is_empty() && slot.network != network
        });
        seen.count() + 1
    }
}
