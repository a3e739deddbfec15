//! IPv6 (RFC 8200), with extension headers and fragments.

mod chain;
mod write;

use std::net::Ipv6Addr;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

pub use self::{
    chain::{Chain, walk},
    write::push,
};
pub(crate) use self::{
    chain::{EXTENSION_HEADERS_MAX, FragmentHeader, fragment_header, is_extension},
    write::push_alone,
};
use crate::{Header, Malformed, ip_fields::Ecn};

/// Length in bytes of the fixed header.
pub const HEADER_BYTES: usize = 40;

/// The fixed IPv6 header: 40 bytes.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Ipv6Header {
    version_class_label: U32,
    payload_length: U16,
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    destination: [u8; 16],
}

impl Ipv6Header {
    /// The header at the start of `bytes`, to be changed in place.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end within the header, or if the version is not 6. The payload's
    /// length is not checked.
    #[inline]
    pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut Self, Malformed> {
        split(bytes)?;
        let available_bytes = bytes.len();
        match Self::mut_from_prefix(bytes) {
            Ok((header, _)) => Ok(header),
            Err(_) => Err(Malformed::cut(Header::Ipv6, HEADER_BYTES, available_bytes)),
        }
    }

    /// The version: 6 in every checked header.
    #[inline]
    pub const fn version(&self) -> u8 {
        (self.version_class_label.get() >> 28) as u8
    }

    /// The differentiated services code point: 0 to 63 (RFC 2474).
    #[inline]
    pub const fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// The congestion mark (RFC 3168).
    #[inline]
    pub const fn ecn(&self) -> Ecn {
        Ecn::of(self.traffic_class())
    }

    /// Code point and congestion mark.
    #[inline]
    pub(crate) const fn traffic_class(&self) -> u8 {
        (self.version_class_label.get() >> 20) as u8
    }

    /// The flow label: 20 bits.
    #[inline]
    pub const fn flow_label(&self) -> u32 {
        self.version_class_label.get() & 0xf_ffff
    }

    /// Length in bytes of everything after this header, extension headers included.
    #[inline]
    pub const fn payload_length(&self) -> u16 {
        self.payload_length.get()
    }

    /// The type of an extension header, or the payload's protocol.
    #[inline]
    pub const fn next_header(&self) -> u8 {
        self.next_header
    }

    /// The number of hops that the packet may still take.
    #[inline]
    pub const fn hop_limit(&self) -> u8 {
        self.hop_limit
    }

    /// The source.
    #[inline]
    pub const fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from_be_bytes(self.source))
    }

    /// The destination.
    #[inline]
    pub const fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from_be_bytes(self.destination))
    }
}

/// A checked view of an IPv6 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6View<'a> {
    header: &'a Ipv6Header,
    payload: &'a [u8],
}

impl<'a> Ipv6View<'a> {
    /// The view of the packet at the start of `bytes`. Bytes after the packet, such as padding, are
    /// left out.
    ///
    /// # Errors
    /// [`Malformed`] if the version is not 6, or if the packet is longer than `bytes`. Only
    /// [`chain`](Self::chain) checks extension headers.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let view = Self::parse_cut(bytes)?;
        let total = HEADER_BYTES + usize::from(view.payload_length());
        if total > bytes.len() {
            return Err(Malformed::cut(Header::Ipv6, total, bytes.len()));
        }
        Ok(view)
    }

    /// The view of a packet with a payload that may go on after `bytes`: in the first segment of
    /// several, or quoted by an ICMPv6 error. [`payload`](Self::payload) then returns the part in
    /// `bytes`.
    ///
    /// # Errors
    /// [`Malformed`] if the version is not 6, or if the header is cut.
    #[inline]
    pub fn parse_cut(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) = split(bytes)?;
        let payload = rest.get(..usize::from(header.payload_length())).unwrap_or(rest);
        Ok(Self { header, payload })
    }

    /// Everything after the fixed header, extension headers included.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The payload after the extension headers.
    ///
    /// # Errors
    /// [`Malformed`], as for [`walk`].
    #[inline]
    pub fn chain(&self) -> Result<Chain, Malformed> {
        walk(self.header.next_header, self.payload)
    }
}

impl std::ops::Deref for Ipv6View<'_> {
    type Target = Ipv6Header;

    #[inline]
    fn deref(&self) -> &Ipv6Header {
        self.header
    }
}

#[inline]
fn split(bytes: &[u8]) -> Result<(&Ipv6Header, &[u8]), Malformed> {
    let Ok((header, rest)) = Ipv6Header::ref_from_prefix(bytes) else {
        return Err(Malformed::cut(Header::Ipv6, HEADER_BYTES, bytes.len()));
    };
    if header.version() != 6 {
        return Err(Malformed::inconsistent(Header::Ipv6, "version"));
    }
    Ok((header, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        build::udp,
        ip::{Fragment, protocol},
    };

    #[test]
    fn fields_and_changes() {
        let mut frame = udp().to("[2001:db8::2]:53").ttl(9).tos(0xb9).payload(b"hello").build();
        let view = Ipv6View::parse(&frame[14..]).unwrap();
        assert_eq!((view.version(), view.payload_length(), view.next_header()), (6, 13, 17));
        assert_eq!((view.hop_limit(), view.dscp(), view.flow_label()), (9, 46, 0));
        assert_eq!((view.ecn(), view.destination().to_string()), (Ecn::Ect1, "2001:db8::2".into()));
        let chain = view.chain().unwrap();
        assert_eq!((chain.protocol, chain.offset_bytes, chain.fragment), (17, 0, Fragment::None));

        let header = Ipv6Header::parse_mut(&mut frame[14..]).unwrap();
        header.set_dscp(0xff);
        header.set_ecn(Ecn::Ce);
        assert_eq!((header.dscp(), header.ecn(), header.version()), (63, Ecn::Ce, 6));
        header.set_dscp(0x10);
        header.set_ecn(Ecn::Ect0);
        assert!(header.decrement_hop_limit());
        assert_eq!((header.hop_limit(), header.traffic_class(), header.flow_label()), (8, 0x42, 0));
        header.set_hop_limit(0);
        assert!(!header.decrement_hop_limit());
    }

    #[test]
    fn cut_packets_are_refused() {
        let frame = udp().to("[2001:db8::2]:53").extension(protocol::HOP_BY_HOP, &[0; 14]).build();
        let packet = &frame[14..];
        for length in 0..packet.len() {
            assert!(matches!(Ipv6View::parse(&packet[..length]), Err(Malformed::Cut { .. })));
        }
        for length in 40..56 {
            let error = Ipv6View::parse_cut(&packet[..length]).unwrap().chain().unwrap_err();
            assert_eq!(error.header(), Header::Ipv6Extension);
        }
        assert!(Ipv6View::parse_cut(&packet[..56]).unwrap().chain().is_ok());
        let mut wrong = packet.to_vec();
        wrong[0] = 0x45;
        let expected = Malformed::inconsistent(Header::Ipv6, "version");
        assert_eq!(Ipv6View::parse(&wrong).unwrap_err(), expected);
    }
}
