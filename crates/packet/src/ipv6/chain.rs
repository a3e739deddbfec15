//! The extension headers between IPv6's fixed header and the payload.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

use crate::{
    Header, Malformed,
    ip_fields::{Fragment, protocol},
};

/// The number of extension headers that are walked through; a packet with more is malformed. RFC
/// 8504, section 5.3 allows a limit of eight options in a header; a limit on headers bounds the
/// work for a packet in the same way.
pub(crate) const EXTENSION_HEADERS_MAX: usize = 8;

/// IPv6's fragment header (RFC 8200, section 4.5): 8 bytes.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct FragmentHeader {
    next_header: u8,
    reserved: u8,
    offset_more: U16,
    identification: U32,
}

impl FragmentHeader {
    /// A header. `offset_bytes` must be a multiple of eight below 65,536; other bits are ignored.
    pub const fn new(
        next_header: u8,
        offset_bytes: usize,
        more: bool,
        identification: u32,
    ) -> Self {
        Self {
            next_header,
            reserved: 0,
            offset_more: U16::new(offset_bytes as u16 & 0xfff8 | more as u16),
            identification: U32::new(identification),
        }
    }

    /// The first header of the part after this header.
    pub const fn next_header(&self) -> u8 {
        self.next_header
    }

    /// Offset of the part in its datagram, in bytes.
    pub const fn offset_bytes(&self) -> usize {
        (self.offset_more.get() & 0xfff8) as usize
    }

    /// Whether more fragments follow this one.
    pub const fn more_fragments(&self) -> bool {
        self.offset_more.get() & 1 == 1
    }

    /// The identification, which the fragments of one datagram share.
    pub const fn identification(&self) -> u32 {
        self.identification.get()
    }

    /// The part of a datagram that the packet holds. [`Fragment::None`] for an atomic fragment,
    /// which is a whole datagram (RFC 6946).
    pub const fn fragment(&self) -> Fragment {
        Fragment::new(self.offset_more.get() >> 3, self.more_fragments())
    }
}

/// The payload after an IPv6 packet's extension headers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Chain {
    /// The payload's protocol: see [`crate::ip::protocol`].
    pub protocol: u8,
    /// Offset of the payload in bytes after the fixed header.
    pub offset_bytes: usize,
    /// The part of a datagram that the packet holds. For a later fragment, `protocol` is the first
    /// header of the fragmented part, which may be an extension header.
    pub fragment: Fragment,
    /// The identification, which the fragments of one datagram share; 0 for a packet that is not a
    /// fragment.
    pub identification: u32,
}

/// Walks through the extension headers: hop-by-hop options, routing, fragment, authentication,
/// destination options, mobility (RFC 6275), HIP (RFC 7401) and Shim6 (RFC 5533). `payload` begins
/// after the fixed header, and `next_header` is that header's field. The walk ends at the header of
/// a later fragment, because nothing after it can be read.
///
/// # Errors
/// [`Malformed`] if a header is cut, or if there are more than eight.
#[inline]
pub fn walk(next_header: u8, payload: &[u8]) -> Result<Chain, Malformed> {
    let chain = Chain {
        protocol: next_header,
        offset_bytes: 0,
        fragment: Fragment::None,
        identification: 0,
    };
    if is_extension(next_header) { walk_extensions(chain, payload) } else { Ok(chain) }
}

#[inline]
pub(crate) const fn is_extension(next_header: u8) -> bool {
    matches!(next_header, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140)
}

fn walk_extensions(mut chain: Chain, payload: &[u8]) -> Result<Chain, Malformed> {
    for _ in 0..EXTENSION_HEADERS_MAX {
        if !is_extension(chain.protocol) {
            return Ok(chain);
        }
        let (first, header_bytes) = extension(chain.protocol, payload, chain.offset_bytes)?;
        if chain.protocol == protocol::FRAGMENT {
            let header: FragmentHeader = zerocopy::transmute!(*first);
            // An atomic fragment inside a fragment does not make it whole.
            if header.fragment() != Fragment::None {
                chain.fragment = header.fragment();
                chain.identification = header.identification();
            }
        }
        chain.protocol = first[0];
        chain.offset_bytes += header_bytes;
        if chain.fragment == Fragment::Later {
            return Ok(chain);
        }
    }
    if is_extension(chain.protocol) {
        return Err(Malformed::inconsistent(Header::Ipv6Extension, "number of extension headers"));
    }
    Ok(chain)
}

/// The first eight bytes of the extension header at an offset, which every one has, and its length.
#[inline]
fn extension(
    kind: u8,
    payload: &[u8],
    offset_bytes: usize,
) -> Result<(&[u8; 8], usize), Malformed> {
    let rest = payload.get(offset_bytes..).unwrap_or_default();
    let cut = |wanted| Malformed::cut(Header::Ipv6Extension, wanted, rest.len());
    let first = rest.first_chunk::<8>().ok_or_else(|| cut(8))?;
    let header_bytes = match kind {
        protocol::FRAGMENT => 8,
        protocol::AUTHENTICATION => (usize::from(first[1]) + 2) * 4,
        _ => (usize::from(first[1]) + 1) * 8,
    };
    if header_bytes > rest.len() { Err(cut(header_bytes)) } else { Ok((first, header_bytes)) }
}

/// The header of a fragment that is not atomic, and the offset of the part after it, which is not
/// read. `None` if there is no such header, or if a header before it is cut.
pub(crate) fn fragment_header(next_header: u8, payload: &[u8]) -> Option<(FragmentHeader, usize)> {
    let (mut kind, mut offset_bytes) = (next_header, 0);
    for _ in 0..EXTENSION_HEADERS_MAX {
        if !is_extension(kind) {
            return None;
        }
        let (first, header_bytes) = extension(kind, payload, offset_bytes).ok()?;
        offset_bytes += header_bytes;
        let header: FragmentHeader = zerocopy::transmute!(*first);
        if kind == protocol::FRAGMENT && header.fragment() != Fragment::None {
            return Some((header, offset_bytes));
        }
        kind = first[0];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        build::{tcp, udp},
        ipv6::Ipv6View,
    };

    #[test]
    fn walks_through_every_kind_of_extension_header() {
        let frame = tcp()
            .to("[2001:db8::2]:80")
            .extension(protocol::HOP_BY_HOP, &[1, 4, 0, 0, 0, 0])
            .extension(protocol::DESTINATION_OPTIONS, &[0; 14])
            .extension(protocol::AUTHENTICATION, &[0; 22])
            .build();
        let chain = Ipv6View::parse(&frame[14..]).unwrap().chain().unwrap();
        let (offset_bytes, fragment) = (8 + 16 + 24, Fragment::None);
        let expected = Chain { protocol: 6, offset_bytes, fragment, identification: 0 };
        assert_eq!(chain, expected);
    }

    #[test]
    fn fragments() {
        let frames =
            udp().to("[2001:db8::2]:80").identification(7).payload([7; 100]).build_fragments(96);
        let chains: Vec<_> = frames
            .iter()
            .map(|frame| Ipv6View::parse(&frame[14..]).unwrap().chain().unwrap())
            .collect();
        let fragments = [Fragment::First, Fragment::Later, Fragment::Later];
        let identification = chains[0].identification;
        assert_ne!(identification, 0);
        let expected = fragments.map(|fragment| Chain {
            protocol: 17,
            offset_bytes: 8,
            fragment,
            identification,
        });
        assert_eq!(chains, expected);
    }

    #[test]
    fn an_atomic_fragment_is_a_whole_datagram() {
        let mut payload = FragmentHeader::new(17, 0, false, 7).as_bytes().to_vec();
        payload.extend([0; 8]);
        let chain = walk(protocol::FRAGMENT, &payload).unwrap();
        let (offset_bytes, fragment) = (8, Fragment::None);
        assert_eq!(chain, Chain { protocol: 17, offset_bytes, fragment, identification: 0 });
    }

    #[test]
    fn the_walk_is_bounded() {
        let headers = |count: usize| {
            let mut payload = [protocol::DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0].repeat(count);
            payload[(count - 1) * 8] = protocol::UDP;
            walk(protocol::DESTINATION_OPTIONS, &payload)
        };
        let longest = headers(EXTENSION_HEADERS_MAX).unwrap();
        assert_eq!((longest.protocol, longest.offset_bytes), (17, 64));
        let error = headers(EXTENSION_HEADERS_MAX + 1).unwrap_err();
        assert!(matches!(error, Malformed::Inconsistent { header: Header::Ipv6Extension, .. }));
    }
}
