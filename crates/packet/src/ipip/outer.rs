//! The outer header.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{
    checksum::Sum,
    ethernet::ETHERTYPE_IPV4,
    ip::protocol,
    ipip::{EncapsulateError, OUTER_TTL, inner::Inner},
    ipv4, ipv6,
};

const DONT_FRAGMENT: u16 = 0x4000;

/// What an outer header takes from the flow that is wrapped.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    pub hash: u32,
    /// Of outer IPv4 headers that do not forbid fragments.
    pub identification: u16,
}

/// What an outer header takes from a usual packet of IPv4.
#[derive(Clone, Copy)]
pub(super) struct Usual {
    pub traffic_class: u8,
    /// Length in bytes, this header included.
    pub total: u16,
    /// None where it forbids fragments.
    pub identification: Option<u16>,
}

/// An outer IPv4 header, as far as it is the same for all packets of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterV4 {
    source: u32,
    destination: u32,
    /// The sum over all that is the same, folded.
    sum: u16,
    /// How many bits of the source come from a flow's hash: up to 32. They are 0 in `source`.
    host_bits: u8,
    in_memory: InMemory,
}

/// What is the same for all usual packets of a tunnel, as words lie in memory: ones' complement sums
/// may be taken in any byte order (RFC 1071, section 2).
#[derive(Clone, Copy, Debug)]
struct InMemory {
    /// With the inner packet's protocol, and the flag that forbids fragments.
    sum: u32,
    source: u32,
    destination: u32,
}

/// The same flag, in the word of flags, offset, TTL and protocol as it lies in memory.
const DONT_FRAGMENT_IN_MEMORY: u32 = u32::from_ne_bytes([0x40, 0, 0, 0]);

impl OuterV4 {
    #[inline]
    pub(super) fn new(source: Ipv4Addr, destination: Ipv4Addr, host_bits: u8) -> Self {
        let sum = Sum::default()
            .bytes(&[0x45, 0, 0, 0])
            .bytes(&[OUTER_TTL, 0, 0, 0])
            .bytes(&source.octets())
            .bytes(&destination.octets());
        let usual_sum = sum.number(DONT_FRAGMENT).number(protocol::IPV4.into());
        let in_memory = InMemory {
            sum: u32::from((!usual_sum.checksum()).to_be()),
            source: u32::from_ne_bytes(source.octets()),
            destination: u32::from_ne_bytes(destination.octets()),
        };
        let (source, destination) = (source.to_bits(), destination.to_bits());
        Self { source, destination, sum: !sum.checksum(), host_bits, in_memory }
    }

    #[inline(always)]
    pub(super) fn source(&self, flow_hash: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.source | host(flow_hash, self.host_bits) as u32)
    }

    /// Writes the EtherType and the header of a usual packet.
    #[inline(always)]
    pub(super) fn write_usual(&self, bytes: &mut [u8; 22], fields: &Usual, flow_hash: u32) {
        let Usual { traffic_class, total, identification } = *fields;
        let InMemory { sum, source, destination } = self.in_memory;
        let word = |bytes: [u8; 2]| u32::from(u16::from_ne_bytes(bytes));
        let host = (host(flow_hash, self.host_bits) as u32).to_be();
        let total = total.to_be_bytes();
        let mut sum = sum + word([0, traffic_class]) + word(total) + (host >> 16) + (host & 0xffff);
        let mut identification_bytes = [0; 2];
        let mut middle = u32::from_ne_bytes([0x40, 0, OUTER_TTL, protocol::IPV4]);
        // What nearly all packets forbid is in the sum already: here it is taken out.
        if let Some(identification) = identification {
            identification_bytes = identification.to_be_bytes();
            sum += word(identification_bytes) + word([!0x40, !0]);
            middle ^= DONT_FRAGMENT_IN_MEMORY;
        }
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        let [ethertype_high, ethertype_low] = ETHERTYPE_IPV4.to_be_bytes();
        let [total_high, total_low] = total;
        let [identification_high, identification_low] = identification_bytes;
        bytes[..4].copy_from_slice(&[ethertype_high, ethertype_low, 0x45, traffic_class]);
        bytes[4..8].copy_from_slice(&[
            total_high,
            total_low,
            identification_high,
            identification_low,
        ]);
        bytes[8..12].copy_from_slice(&middle.to_ne_bytes());
        bytes[12..14].copy_from_slice(&checksum.to_ne_bytes());
        bytes[14..18].copy_from_slice(&(source | host).to_ne_bytes());
        bytes[18..].copy_from_slice(&destination.to_ne_bytes());
    }

    /// The header of a packet; of no flow, where it is not told.
    #[inline(always)]
    pub(super) fn header(
        &self,
        inner: &Inner,
        flow: Option<Flow>,
    ) -> Result<[u8; ipv4::HEADER_BYTES], EncapsulateError> {
        let packet_bytes = inner.total_bytes;
        let Ok(total) = u16::try_from(packet_bytes + ipv4::HEADER_BYTES) else {
            return Err(EncapsulateError::TooBig { packet_bytes });
        };
        let identification = flow.map_or(inner.identification, |flow| flow.identification);
        let (identification, flags) =
            if inner.dont_fragment { (0, DONT_FRAGMENT) } else { (identification, 0) };
        let host = flow.map_or(0, |flow| host(flow.hash, self.host_bits) as u32);
        // The sum has these fields and bits as zeroes, so they add to it what they are. Eight numbers of
        // 16 bits leave 19, which one fold makes 17 and another 16.
        let sum = u32::from(self.sum)
            + u32::from(inner.traffic_class)
            + u32::from(total)
            + u32::from(identification)
            + u32::from(flags)
            + u32::from(inner.protocol)
            + (host >> 16)
            + (host & 0xffff);
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        let mut header = [0; ipv4::HEADER_BYTES];
        header[..2].copy_from_slice(&[0x45, inner.traffic_class]);
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        header[6..8].copy_from_slice(&flags.to_be_bytes());
        header[8..10].copy_from_slice(&[OUTER_TTL, inner.protocol]);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        header[12..16].copy_from_slice(&(self.source | host).to_be_bytes());
        header[16..].copy_from_slice(&self.destination.to_be_bytes());
        Ok(header)
    }
}

/// An outer IPv6 header, as far as it is the same for all packets of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterV6 {
    header: [u8; ipv6::HEADER_BYTES],
    /// How many bits of the source come from a flow's hash: up to 64. They are 0 in `header`.
    host_bits: u8,
}

impl OuterV6 {
    #[inline]
    pub(super) fn new(source: Ipv6Addr, destination: Ipv6Addr, host_bits: u8) -> Self {
        let mut header = [0; ipv6::HEADER_BYTES];
        header[0] = 0x60;
        header[7] = OUTER_TTL;
        header[8..24].copy_from_slice(&source.octets());
        header[24..].copy_from_slice(&destination.octets());
        Self { header, host_bits }
    }

    #[inline(always)]
    pub(super) fn source(&self, flow_hash: u32) -> Ipv6Addr {
        let mut source = [0; 16];
        source.copy_from_slice(&self.header[8..24]);
        let host = host(flow_hash, self.host_bits);
        Ipv6Addr::from_bits(u128::from_be_bytes(source) | u128::from(host))
    }

    /// As that of IPv4.
    #[inline(always)]
    pub(super) fn header(
        &self,
        inner: &Inner,
        flow: Option<Flow>,
    ) -> Result<[u8; ipv6::HEADER_BYTES], EncapsulateError> {
        let packet_bytes = inner.total_bytes;
        let Ok(payload_bytes) = u16::try_from(packet_bytes) else {
            return Err(EncapsulateError::TooBig { packet_bytes });
        };
        let mut header = self.header;
        header[0] = 0x60 | inner.traffic_class >> 4;
        header[1] = inner.traffic_class << 4;
        header[4..6].copy_from_slice(&payload_bytes.to_be_bytes());
        header[6] = inner.protocol;
        if let Some(flow) = flow {
            let mut low = [0; 8];
            low.copy_from_slice(&header[16..24]);
            let low = u64::from_be_bytes(low) | host(flow.hash, self.host_bits);
            header[16..24].copy_from_slice(&low.to_be_bytes());
        }
        Ok(header)
    }
}

/// So many bits, up to 64, that differ by the flow: the upper ones of its hash, spread over 64.
#[inline(always)]
fn host(flow_hash: u32, host_bits: u8) -> u64 {
    // By an odd number, so that no two hashes share a product; its upper bits depend on all of it.
    let spread = u64::from(flow_hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // In two steps, without a branch: 64 at once is no shift. Of 64 bits the lowest is not taken.
    (spread >> 1) >> (63_u8.saturating_sub(host_bits) & 63)
}
