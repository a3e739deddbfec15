//! The Internet checksum: whole (RFC 1071) and incremental (RFC 1624).

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    ops::{Add, Range},
};

use crate::PacketBuf;

/// A one's-complement sum of 16-bit words under way (RFC 1071).
///
/// ```
/// use hotloop_packet::checksum::Sum;
///
/// // The example of RFC 1071, section 3.
/// let sum = Sum::default().bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
/// assert_eq!(sum.checksum(), !0xddf2);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// The sum of words as they lie in memory, so that nothing is swapped while adding.
    sum: u64,
}

impl Sum {
    /// Adds bytes. Only the last piece may have an odd length; it counts as if a zero followed.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        // Adding 32 bits at a time into 64 leaves the carries for later (RFC 1071, section 2 (C));
        // 2^32 words would have to be added before they are lost.
        let (words, rest) = bytes.as_chunks::<4>();
        let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        Self { sum: fold_once(self.sum) + fold_once(sum) + u64::from(u32::from_ne_bytes(last)) }
    }

    /// Adds a 16-bit number, as it stands in a header.
    #[inline]
    #[must_use]
    pub const fn number(self, number: u16) -> Self {
        // The sum after `bytes` is below 2^35, so there is room for 2^47 numbers.
        Self { sum: self.sum + number.to_be() as u64 }
    }

    /// Adds the pseudo-header of an IPv4 packet with `len_bytes` bytes of transport header and payload
    /// (RFC 9293, section 3.1; RFC 768).
    #[must_use]
    pub fn pseudo_v4(
        self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: u8,
        len_bytes: u16,
    ) -> Self {
        self.bytes(&source.octets())
            .bytes(&destination.octets())
            .number(u16::from(protocol))
            .number(len_bytes)
    }

    /// Adds the pseudo-header of an IPv6 packet with `len_bytes` bytes of transport header and payload
    /// (RFC 8200, section 8.1).
    #[must_use]
    pub fn pseudo_v6(
        self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        protocol: u8,
        len_bytes: u32,
    ) -> Self {
        self.bytes(&source.octets())
            .bytes(&destination.octets())
            .bytes(&len_bytes.to_be_bytes())
            .number(u16::from(protocol))
    }

    /// Adds the bytes of a packet from `range.start` to `range.end`, over all segments. Bytes after
    /// the packet's end count as zeroes.
    #[must_use]
    pub fn packet<P: PacketBuf>(self, packet: &P, range: Range<usize>) -> Self {
        let (mut sum, mut offset) = (self, 0);
        for segment in packet.segments() {
            let (from, to) = (range.start.max(offset), range.end.min(offset + segment.len()));
            if from < to {
                let part = !checksum(&segment[from - offset..to - offset]);
                // A part that begins in the middle of a word has its bytes the other way round (RFC
                // 1071, section 2 (B)).
                let is_odd = !(from - range.start).is_multiple_of(2);
                sum = sum.number(if is_odd { part.swap_bytes() } else { part });
            }
            offset += segment.len();
        }
        sum
    }

    /// The checksum, as written into a header: the sum's one's complement. It is 0 if the summed
    /// bytes contain a correct checksum.
    #[inline]
    pub const fn checksum(self) -> u16 {
        // Two folds by halves to 32 bits, two to 16: the second of each pair adds the carry of the
        // first.
        let sum = fold_once(fold_once(self.sum));
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        u16::from_be(!((sum & 0xffff) as u16 + (sum >> 16) as u16))
    }
}

/// Folds the upper half of a sum into its lower: at most 2^33 - 2 remains.
#[inline]
const fn fold_once(sum: u64) -> u64 {
    (sum & 0xffff_ffff) + (sum >> 32)
}

/// The checksum of `bytes` (RFC 1071).
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::default().bytes(bytes).checksum()
}

/// The checksum of a TCP, UDP or ICMP message in IPv4; its checksum field must be zero. ICMP has no
/// pseudo-header: use [`checksum`].
///
/// UDP sends 0 as 0xffff (RFC 768).
pub fn transport_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, message: &[u8]) -> u16 {
    let len_bytes = message.len() as u16;
    Sum::default().pseudo_v4(source, destination, protocol, len_bytes).bytes(message).checksum()
}

/// The checksum of a TCP, UDP or ICMPv6 message in IPv6; its checksum field must be zero.
///
/// UDP sends 0 as 0xffff (RFC 768).
pub fn transport_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, message: &[u8]) -> u16 {
    let len_bytes = message.len() as u32;
    Sum::default().pseudo_v6(source, destination, protocol, len_bytes).bytes(message).checksum()
}

/// The checksum of a header after its word `old` has become `new` (RFC 1624, equation 3).
#[inline]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = !checksum as u32 + !old as u32 + new as u32;
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// A change to bytes that a checksum covers. It corrects every checksum over these bytes (RFC
/// 1624).
///
/// An address is covered by two checksums: the one of the IPv4 header and the one of TCP, UDP or
/// ICMPv6. The setters of addresses correct the first and return the change for the second:
///
/// ```
/// use hotloop_packet::{build::tcp, ipv4::Ipv4Header, tcp::TcpHeader};
///
/// let mut frame = tcp().from("10.0.0.1:1000").to("192.0.2.1:80").build();
/// let change = Ipv4Header::parse_mut(&mut frame[14..])?.set_source([203, 0, 113, 1].into());
/// let segment = TcpHeader::parse_mut(&mut frame[34..])?;
/// segment.update_checksum(change);
/// segment.set_source_port(4096);
/// assert_eq!(frame, tcp().from("203.0.113.1:4096").to("192.0.2.1:80").build());
/// # Ok::<(), hotloop_packet::Malformed>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// The sum of the new words and of the complements of the old ones.
    sum: Sum,
}

impl Change {
    /// The change of one 16-bit word from `old` to `new`, as numbers.
    #[inline]
    pub const fn of_word(old: u16, new: u16) -> Self {
        Self { sum: Sum { sum: 0 }.number(!old).number(new) }
    }

    /// The change of `N` bytes from `old` to `new`. They begin at an even offset of the covered
    /// bytes, and `N` is even.
    #[inline]
    pub fn of_bytes<const N: usize>(old: [u8; N], new: [u8; N]) -> Self {
        const { assert!(N.is_multiple_of(2), "whole words") };
        Self { sum: Sum::default().bytes(&old.map(|byte| !byte)).bytes(&new) }
    }

    /// The corrected value of `checksum`.
    #[inline]
    pub const fn apply(self, checksum: u16) -> u16 {
        self.sum.number(!checksum).checksum()
    }
}

/// Both changes, of different bytes or one after the other.
impl Add for Change {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self { sum: Sum { sum: fold_once(self.sum.sum) + fold_once(other.sum.sum) } }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, word by word.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn known_headers() {
        // A widely used worked example: its checksum field holds 0xb861.
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0x00,
            0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(checksum(&header), 0xb861);
        assert_eq!(checksum(&[]), 0xffff);
        assert_eq!(checksum(&[0xff; 65_535]), plain(&[0xff; 65_535]));
    }

    #[test]
    fn example_of_rfc_1624() {
        // Section 4: a word goes from 0x5555 to 0x3285 under the checksum 0xdd2f.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn pseudo_headers_are_the_bytes_that_the_rfcs_draw() {
        let (source, destination) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(203, 0, 113, 9));
        let message = [1, 2, 3, 4, 5];
        let mut bytes = vec![192, 0, 2, 1, 203, 0, 113, 9, 0, 17, 0, 5];
        bytes.extend(message);
        assert_eq!(transport_v4(source, destination, 17, &message), plain(&bytes));

        let (source, destination) =
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let mut bytes = Ipv6Addr::octets(&source).to_vec();
        bytes.extend(Ipv6Addr::octets(&destination));
        bytes.extend([0, 0, 0, 5, 0, 0, 0, 58]);
        bytes.extend(message);
        assert_eq!(transport_v6(source, destination, 58, &message), plain(&bytes));
    }

    proptest! {
        #[test]
        fn equals_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(checksum(&bytes), plain(&bytes));
        }

        #[test]
        fn pieces_sum_to_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in 0usize..100,
        ) {
            let (head, tail) = bytes.split_at((at * 2).min(bytes.len() & !1));
            prop_assert_eq!(Sum::default().bytes(head).bytes(tail).checksum(), plain(&bytes));
        }

        #[test]
        fn incremental_equals_full(
            mut bytes in prop::collection::vec(any::<u8>(), 4..200),
            at in any::<prop::sample::Index>(),
            new in any::<[u8; 4]>(),
        ) {
            // A header is never all zeroes: its sum would have two spellings.
            bytes.push(0x45);
            let offset = at.index(bytes.len() - 4) & !1;
            let before = checksum(&bytes);
            let field: &mut [u8; 4] = (&mut bytes[offset..offset + 4]).try_into().unwrap();
            let old = *field;
            *field = new;
            let after = checksum(&bytes);
            prop_assert_eq!(Change::of_bytes(old, new).apply(before), after);
            let word = |bytes: [u8; 4], at| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let words = [0, 2].map(|at| (word(old, at), word(new, at)));
            let [first, second] = words.map(|(old, new)| Change::of_word(old, new));
            prop_assert_eq!((first + second).apply(before), after);
            let [first, second] = words;
            let before = update(before, first.0, first.1);
            prop_assert_eq!(update(before, second.0, second.1), after);
        }
    }
}
