//! One core's share of the WAN address's ports. Hosts get them in blocks.

use crate::drops::NatDrop;
use hotloop::packet::{ethernet::MacAddress, flow_key::FlowKeyV4, ip::protocol};
use hotloop::prelude::*;
use std::{net::Ipv4Addr, time::Duration};

/// Number of ports in a block.
const BLOCK_PORTS: u16 = 64;

/// Ports below this are only for mappings of such ports (RFC 4787, REQ-3a).
const WELL_KNOWN_PORTS: u16 = 1024;

/// Ports of a block with even numbers.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Maximum number of connections by one port of a host.
const CONNECTIONS_PER_PORT: u32 = 4096;

/// How long no host has a block, for packets on their way to the former one: RFC 6888, REQ-8.
const QUARANTINE: Duration = Duration::from_secs(120);

/// The number of a port's block. Its remainder by the number of cores is the core that has the
/// port.
pub fn block_of(port: u16) -> usize {
    usize::from(port / BLOCK_PORTS)
}

/// A host's port of a protocol, as the source of a key without a destination.
pub const fn end(host: Ipv4Addr, port: u16, protocol: u8) -> FlowKeyV4 {
    FlowKeyV4::new(host, Ipv4Addr::UNSPECIFIED, port, 0, protocol)
}

/// A port in use, or an echo identifier.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// The [`end`] that it is for.
    pub inside: FlowKeyV4,
    /// The last known station of the host.
    pub station: MacAddress,
    /// Number of connections that use the port.
    pub connection_count: u32,
}

/// Consecutive ports of one host.
#[derive(Default)]
struct Block {
    first_port: u16,
    host: Option<Ipv4Addr>,
    /// A bit for each port in use.
    used: u64,
    /// The bit after the port that was taken last.
    next: u32,
    /// When another host may have the block.
    free_from: Instant,
}

impl Block {
    /// Takes an unused port among these, the next in turn.
    fn take(&mut self, wanted: u64) -> Option<u16> {
        let unused = !self.used & wanted;
        let bit = (self.next + unused.rotate_right(self.next).trailing_zeros()) % u64::BITS;
        (unused != 0).then(|| {
            self.used |= 1 << bit;
            self.next = (bit + 1) % u64::BITS;
            self.first_port + bit as u16
        })
    }
}

/// The ports of one core.
pub struct Ports {
    core_count: usize,
    /// Maximum number of blocks of a host.
    block_limit: usize,
    blocks: Vec<Block>,
    /// The mappings of all ports.
    pub mappings: Box<[Option<Mapping>]>,
}

impl Ports {
    /// All ports that lead to this core. A host gets `per_host` of them, rounded up to blocks.
    pub fn new(core: &Core, per_host: u16) -> Self {
        // Nobody gets port 0.
        let block = |at| Block { first_port: at, used: u64::from(at == 0), ..Block::default() };
        let is_own = |port: &u16| block_of(*port) % core.count() == core.index();
        let firsts = (0..=u16::MAX).step_by(BLOCK_PORTS.into()).filter(is_own);
        let block_limit = per_host.div_ceil(BLOCK_PORTS).into();
        let mappings = vec![None; 1 << 16].into();
        let (core_count, blocks) = (core.count(), firsts.map(block).collect());
        Self { core_count, block_limit, blocks, mappings }
    }

    /// Counts one connection more for the port that the source of this key has, which it returns.
    /// If the source has none, takes one for it, without a station yet.
    ///
    /// # Errors
    /// The host has the maximum number of ports, or the port that of connections; or no port is
    /// left.
    pub fn open(&mut self, key: &FlowKeyV4, now: Instant) -> Result<u16, NatDrop> {
        let inside = end(key.source(), key.source_port(), key.protocol());
        let own = self.blocks.iter().filter(|block| block.host == Some(key.source()));
        let mut ports = own.flat_map(|block| (0..BLOCK_PORTS).map(|at| block.first_port + at));
        let mapping = |port: u16| self.mappings[usize::from(port)];
        let known = ports.find(|port| mapping(*port).is_some_and(|found| found.inside == inside));
        let port = known.map_or_else(|| self.take(&inside, now), Ok)?;
        let new = Mapping { inside, station: MacAddress::new([0; 6]), connection_count: 0 };
        let mapping = self.mappings[usize::from(port)].get_or_insert(new);
        if mapping.connection_count >= CONNECTIONS_PER_PORT {
            return Err(NatDrop::HostLimit);
        }
        mapping.connection_count += 1;
        Ok(port)
    }

    /// Takes a port for an [`end`]: both are below 1024 or neither, and both are even or odd, while
    /// there are such ports (RFC 4787, REQ-3a and REQ-4).
    fn take(&mut self, inside: &FlowKeyV4, now: Instant) -> Result<u16, NatDrop> {
        let (host, port) = (inside.source(), inside.source_port());
        let parity = if port.is_multiple_of(2) { EVEN } else { !EVEN };
        let wants_low = port < WELL_KNOWN_PORTS && inside.protocol() != protocol::ICMP;
        let is_low = |block: &Block| block.first_port < WELL_KNOWN_PORTS;
        let is_own = |block: &Block| block.host == Some(host);
        let mut own = self.blocks.iter_mut().filter(|it| is_own(it) && is_low(it) == wants_low);
        if let Some(port) = own.find_map(|block| block.take(parity)) {
            return Ok(port);
        }
        let may_grow = self.blocks.iter().filter(|block| is_own(block)).count() < self.block_limit;
        let rank = |block: &Block| match block.host {
            Some(_) if is_own(block) && !block.used & parity != 0 => Some(0),
            None if may_grow && block.free_from <= now => Some(1),
            Some(_) if is_own(block) && !block.used != 0 => Some(2),
            _ => None,
        };
        let usable = self.blocks.iter_mut().filter(|block| wants_low || !is_low(block));
        let ranked = usable.filter_map(|block| Some((rank(block)?, block)));
        // Of free blocks, the one that has been free for longest.
        let best = ranked.min_by_key(|(rank, block)| (!is_low(block), *rank, block.free_from));
        let refused = if may_grow { NatDrop::NoPort } else { NatDrop::HostLimit };
        let (_, block) = best.ok_or(refused)?;
        block.host = Some(host);
        block.take(parity).or_else(|| block.take(u64::MAX)).ok_or(refused)
    }

    /// Counts one connection less for a port. The mapping ends with its last connection, and the
    /// port is given back.
    pub fn close(&mut self, port: u16, now: Instant) {
        let place = &mut self.mappings[usize::from(port)];
        if let Some(mapping) = place.as_mut().filter(|mapping| mapping.connection_count > 1) {
            mapping.connection_count -= 1;
            return;
        }
        *place = None;
        let block = &mut self.blocks[block_of(port) / self.core_count];
        block.used &= !(1 << (port % BLOCK_PORTS));
        if block.used & !u64::from(block.first_port == 0) == 0 {
            (block.host, block.free_from) = (None, now + QUARANTINE);
        }
    }
}
