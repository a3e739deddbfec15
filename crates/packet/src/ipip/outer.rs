//! The outer header.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{
    checksum::Sum,
    ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    ip::protocol,
    ipip::{EncapsulateError, OUTER_TTL, inner::Inner},
    ipv4, ipv6,
};

/// The flag that forbids fragments, in the first byte of flags and offset.
const DONT_FRAGMENT: u8 = 0x40;

/// Length in bytes of the EtherType, which is written with each header.
pub(super) const ETHERTYPE_BYTES: usize = 2;

/// What an outer header takes from the flow of its packet.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    pub hash: u32,
    /// Of outer IPv4 headers that do not forbid fragments.
    pub identification: u16,
}

/// The fields of an outer IPv4 header that differ between the packets of a tunnel.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    pub traffic_class: u8,
    /// Length of the packet in bytes, this header included.
    pub total: u16,
    /// `None` if the header forbids fragments.
    pub identification: Option<u16>,
    /// The family of the inner packet: [`protocol::IPV4`] or [`protocol::IPV6`].
    pub protocol: u8,
    /// The bits of the source that come from the flow: [`OuterV4::host`].
    pub host: u32,
}

/// An outer IPv4 header, as far as it is the same for all packets of a tunnel: words as they lie in
/// memory, as one's complement sums may be taken in any byte order (RFC 1071, section 2).
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterV4 {
    /// The sum over what is the same, folded. It has the flag that forbids fragments and the protocol of
    /// an inner IPv4 packet, as nearly all packets do.
    sum: u32,
    source: u32,
    destination: u32,
    /// How many bits of the source come from a flow's hash: up to 32. They are 0 in `source`.
    host_bits: u8,
}

/// A word of a header as it lies in memory.
#[inline(always)]
const fn word(bytes: [u8; 2]) -> u32 {
    u16::from_ne_bytes(bytes) as u32
}

impl OuterV4 {
    #[inline]
    pub(super) fn new(source: Ipv4Addr, destination: Ipv4Addr, host_bits: u8) -> Self {
        let sum = Sum::default()
            .bytes(&[0x45, 0, 0, 0])
            .bytes(&[DONT_FRAGMENT, 0, OUTER_TTL, protocol::IPV4])
            .bytes(&source.octets())
            .bytes(&destination.octets());
        Self {
            sum: word((!sum.checksum()).to_be_bytes()),
            source: u32::from_ne_bytes(source.octets()),
            destination: u32::from_ne_bytes(destination.octets()),
            host_bits,
        }
    }

    #[inline(always)]
    pub(super) fn source(&self, flow_hash: u32) -> Ipv4Addr {
        Ipv4Addr::from((self.source | self.host(flow_hash)).to_ne_bytes())
    }

    /// The bits of the source that come from a flow's hash, as they lie in memory.
    #[inline(always)]
    pub(super) fn host(&self, flow_hash: u32) -> u32 {
        (host(flow_hash, self.host_bits) as u32).to_be()
    }

    /// Writes the EtherType and the header.
    #[inline(always)]
    pub(super) fn write(
        &self,
        bytes: &mut [u8; ETHERTYPE_BYTES + ipv4::HEADER_BYTES],
        fields: &Fields,
    ) {
        let Fields { traffic_class, total, identification, protocol, host } = *fields;
        let total = total.to_be_bytes();
        let mut sum = self.sum
            + word([0, traffic_class])
            + word(total)
            + (host >> 16)
            + (host & 0xffff)
            + (word([0, protocol]) - word([0, protocol::IPV4]));
        let (mut flags, mut identification_bytes) = (DONT_FRAGMENT, [0; 2]);
        if let Some(identification) = identification {
            (flags, identification_bytes) = (0, identification.to_be_bytes());
            sum += word(identification_bytes) + word([!DONT_FRAGMENT, !0]);
        }
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        let [[e0, e1], [t0, t1], [i0, i1]] =
            [ETHERTYPE_IPV4.to_be_bytes(), total, identification_bytes];
        bytes[..4].copy_from_slice(&[e0, e1, 0x45, traffic_class]);
        bytes[4..8].copy_from_slice(&[t0, t1, i0, i1]);
        bytes[8..12].copy_from_slice(&[flags, 0, OUTER_TTL, protocol]);
        bytes[12..14].copy_from_slice(&checksum.to_ne_bytes());
        bytes[14..18].copy_from_slice(&(self.source | host).to_ne_bytes());
        bytes[18..].copy_from_slice(&self.destination.to_ne_bytes());
    }

    /// The EtherType and the header of a packet; of no flow where none is given.
    pub(super) fn header(
        &self,
        inner: &Inner,
        flow: Option<Flow>,
    ) -> Result<[u8; ETHERTYPE_BYTES + ipv4::HEADER_BYTES], EncapsulateError> {
        let packet_bytes = inner.total_bytes;
        let Ok(total) = u16::try_from(packet_bytes + ipv4::HEADER_BYTES) else {
            return Err(EncapsulateError::TooBig { packet_bytes });
        };
        let identification = flow.map_or(inner.identification, |flow| flow.identification);
        let fields = Fields {
            traffic_class: inner.traffic_class,
            total,
            identification: (!inner.dont_fragment).then_some(identification),
            protocol: inner.protocol,
            host: flow.map_or(0, |flow| self.host(flow.hash)),
        };
        let mut header = [0; _];
        self.write(&mut header, &fields);
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

    /// The EtherType and the header of a packet; of no flow where none is given.
    pub(super) fn header(
        &self,
        inner: &Inner,
        flow: Option<Flow>,
    ) -> Result<[u8; ETHERTYPE_BYTES + ipv6::HEADER_BYTES], EncapsulateError> {
        let packet_bytes = inner.total_bytes;
        let Ok(payload_bytes) = u16::try_from(packet_bytes) else {
            return Err(EncapsulateError::TooBig { packet_bytes });
        };
        let mut bytes = [0; _];
        let (ethertype, header) = bytes.split_at_mut(ETHERTYPE_BYTES);
        ethertype.copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
        header.copy_from_slice(&self.header);
        header[0] = 0x60 | inner.traffic_class >> 4;
        header[1] = inner.traffic_class << 4;
        header[4..6].copy_from_slice(&payload_bytes.to_be_bytes());
        header[6] = inner.protocol;
        if let Some(flow) = flow {
            header[8..24].copy_from_slice(&self.source(flow.hash).octets());
        }
        Ok(bytes)
    }
}

/// As many bits as are wanted, up to 64, that differ by the flow: the upper ones of its hash, spread
/// over 64.
#[inline(always)]
fn host(flow_hash: u32, host_bits: u8) -> u64 {
    // By an odd number, so that no two hashes share a product; its upper bits depend on all of it.
    let spread = u64::from(flow_hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // In two steps, without a branch: 64 at once is no shift. Of 64 bits the lowest is not taken.
    (spread >> 1) >> (63_u8.saturating_sub(host_bits) & 63)
}
