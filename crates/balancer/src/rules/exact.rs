//! Services of one address of IPv4, one protocol and one port. None is more specific, so that one probe finds them.

use super::level::spread;
use super::ports::{PIECES_MAX, ServiceIndex};
use super::{TCP, UDP};
use crate::spec::{Ports, Protocol, ServiceSpec};
use std::net::{IpAddr, Ipv4Addr};

/// They lie in a hash table of which at most half is in use, as prefixes do in a [`Level`](super::Level).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Exact {
    /// What leaves of a hash as many bits as number the slots.
    shift: u32,
    slots: Box<[Slot]>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Slot {
    /// 0 where it is empty.
    key: u64,
    service: ServiceIndex,
}

/// Address, port and protocol as a number, which is not 0, as no service has protocol 0.
#[inline(always)]
const fn key(address: Ipv4Addr, protocol: u8, port: u16) -> u64 {
    (address.to_bits() as u64) << 32 | (port as u64) << 16 | protocol as u64
}

impl Exact {
    /// Those among the services, whose indices `order` has by prefix. An address with so many that it has pages of
    /// ports is left out: there, two loads find the service.
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
        let empty = Slot { key: 0, service: ServiceIndex::NONE };
        let shift = u64::BITS - count.ilog2();
        let mut table = Self { shift, slots: vec![empty; count].into() };
        for (key, service) in exact {
            let mut at = table.start(key);
            // Of two that are alike, the first in the configuration has the packets.
            while table.slots[at].key != 0 && table.slots[at].key != key {
                at = table.following(at);
            }
            if table.slots[at].key == 0 {
                table.slots[at] = Slot { key, service };
            }
        }
        table
    }

    /// The service of an address, a protocol (IP's number) and a port, if it is of these alone.
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

    /// How much memory it takes, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
}
