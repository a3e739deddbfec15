//! Services of one IPv4 address, one protocol and one port. No service is more specific, so that
//! one probe finds them.

use super::ports::{PIECES_MAX, ServiceIndex};
use super::prefix_level::spread;
use super::{TCP, UDP};
use crate::spec::{Ports, Protocol, ServiceSpec};
use std::net::{IpAddr, Ipv4Addr};

/// A hash table that is at most half full, like a [`Level`](super::Level).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Exact {
    /// Right shift that turns a hash into a slot number.
    shift: u32,
    slots: Box<[ExactSlot]>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct ExactSlot {
    /// 0 if the slot is empty.
    key: u64,
    service: ServiceIndex,
}

/// Address, port and protocol as a number. Never 0, since no service has protocol 0.
#[inline(always)]
const fn key(address: Ipv4Addr, protocol: u8, port: u16) -> u64 {
    (address.to_bits() as u64) << 32 | (port as u64) << 16 | protocol as u64
}

impl Exact {
    /// Collects the exact services; `order` has the services' indices by prefix. An address
    /// with pages of ports for its services is left out: there, two loads find the service.
    pub fn new(services: &[ServiceSpec], order: &[usize]) -> Self {
        let vips = order.chunk_by(|&a, &b| services[a].address == services[b].address);
        let few = vips.filter(|of_vip| of_vip.len() < PIECES_MAX).flatten();
        let exact = few.filter_map(|&index| {
            let ServiceSpec { address, protocol, ports, .. } = services[index];
            let (protocol, port) = match (protocol, ports) {
                (Protocol::Tcp, Ports::Range { first, last }) if first == last => (TCP, first),
                (Protocol::Udp, Ports::Range { first, last }) if first == last => (UDP, first),
                _ => return None,
            };
            match address.network() {
                IpAddr::V4(host) if address.len() == 32 => {
                    Some((key(host, protocol, port), ServiceIndex::new(index)))
                }
                _ => None,
            }
        });
        let exact: Vec<_> = exact.collect();
        if exact.is_empty() {
            return Self::default();
        }
        let count = (2 * exact.len()).next_power_of_two();
        let empty = ExactSlot { key: 0, service: ServiceIndex::NONE };
        let shift = u64::BITS - count.ilog2();
        let mut table = Self { shift, slots: vec![empty; count].into() };
        for (key, service) in exact {
            let mut at = table.start(key);
            // If two services are alike, the first in the configuration gets the packets.
            while table.slots[at].key != 0 && table.slots[at].key != key {
                at = table.following(at);
            }
            if table.slots[at].key == 0 {
                table.slots[at] = ExactSlot { key, service };
            }
        }
        table
    }

    /// The service of this address, protocol (IP's number) and port, if one has exactly these.
    #[inline(always)]
    pub fn find(&self, address: Ipv4Addr, protocol: u8, port: u16) -> Option<usize> {
        let key = key(address, protocol, port);
        let mut at = self.start(key);
        loop {
            let slot = self.slots.get(at)?;
            if slot.key == key {
                return slot.service.index();
            }
            if slot.key == 0 {
                return None;
            }
            at = self.following(at);
        }
    }

    #[inline(always)]
    fn start(&self, key: u64) -> usize {
        (spread(key) >> self.shift) as usize
    }

    #[inline(always)]
    fn following(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// The table's memory, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
}
