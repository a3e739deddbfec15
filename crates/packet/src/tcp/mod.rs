//! TCP (RFC 9293).

mod write;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

pub use self::write::{push, set_options};
use crate::{Header, Malformed, checksum};

/// Length in bytes of a header without options.
pub const HEADER_BYTES: usize = 20;

/// Offset of the [`flags`] in a header, in bytes.
pub const FLAGS_OFFSET: usize = 13;

/// Length in bytes of the longest list of options.
pub const OPTION_BYTES_MAX: usize = 40;

/// The flags of a TCP segment, combined with `|`.
pub mod flags {
    /// The sender has no more to send.
    pub const FIN: u8 = 0x01;
    /// Opens a connection.
    pub const SYN: u8 = 0x02;
    /// Ends a connection at once.
    pub const RST: u8 = 0x04;
    /// The receiver hands the data to the application at once.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
}

/// Whether a segment of a working TCP may have all of these [`flags`] and no others.
///
/// SYN, FIN and RST exclude each other, and only the first segment of a connection and a reset may
/// lack ACK (RFC 9293, sections 3.5 and 3.10.7): no flags at all, FIN without ACK, or all flags at
/// once come from a port scan. URG occurs with data or FIN, or with a SYN that opens a connection. A
/// state machine needs to know only possible segments; Linux's connection tracking takes the same
/// ones. PSH and the two flags of explicit congestion notification (RFC 3168) don't matter.
///
/// ```
/// use hotloop_packet::tcp::{are_flags_possible, flags};
///
/// assert!(are_flags_possible(flags::SYN) && are_flags_possible(flags::FIN | flags::ACK | flags::PSH));
/// assert!(!are_flags_possible(flags::SYN | flags::FIN) && !are_flags_possible(flags::FIN));
/// ```
#[inline]
pub const fn are_flags_possible(flags: u8) -> bool {
    use flags::{ACK, FIN, RST, SYN, URG};
    match flags & (SYN | FIN | RST) {
        0 | FIN => flags & ACK != 0,
        SYN => flags & (ACK | URG) != ACK | URG,
        RST => flags & URG == 0,
        _ => false,
    }
}

/// Whether a segment with these [`flags`] opens a connection: a SYN alone.
///
/// ```
/// use hotloop_packet::tcp::{flags::{ACK, RST, SYN}, is_syn, is_syn_ack};
///
/// assert!(is_syn(SYN) && is_syn_ack(SYN | ACK));
/// assert!([SYN | ACK, SYN | RST, ACK].iter().all(|flags| !is_syn(*flags)));
/// assert!([SYN, SYN | ACK | RST, ACK].iter().all(|flags| !is_syn_ack(*flags)));
/// ```
#[inline]
#[must_use]
pub const fn is_syn(flags: u8) -> bool {
    use flags::{ACK, FIN, RST, SYN};
    flags & (SYN | ACK | RST | FIN) == SYN
}

/// Whether a segment with these [`flags`] answers the one that opens a connection.
#[inline]
#[must_use]
pub const fn is_syn_ack(flags: u8) -> bool {
    use flags::{ACK, FIN, RST, SYN};
    flags & (SYN | ACK | RST | FIN) == SYN | ACK
}

/// The fixed part of a TCP header: 20 bytes.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TcpHeader {
    source_port: U16,
    destination_port: U16,
    sequence_number: U32,
    acknowledgment_number: U32,
    data_offset: u8,
    flags: u8,
    window: U16,
    checksum: U16,
    urgent_pointer: U16,
}

impl TcpHeader {
    /// The header at the start of `bytes`, to be changed in place.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end within the header's first 20, or if its length is below that.
    /// The options are not checked: they may be cut, as in the quote of an ICMP error.
    #[inline]
    pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut Self, Malformed> {
        let available_bytes = bytes.len();
        let Ok((header, _)) = Self::mut_from_prefix(bytes) else {
            return Err(Malformed::cut(Header::Tcp, HEADER_BYTES, available_bytes));
        };
        if header.header_bytes() < HEADER_BYTES {
            return Err(Malformed::inconsistent(Header::Tcp, "data offset"));
        }
        Ok(header)
    }

    /// The source's port.
    #[inline]
    pub const fn source_port(&self) -> u16 {
        self.source_port.get()
    }

    /// The destination's port.
    #[inline]
    pub const fn destination_port(&self) -> u16 {
        self.destination_port.get()
    }

    /// The number of the first byte sent.
    #[inline]
    pub const fn sequence_number(&self) -> u32 {
        self.sequence_number.get()
    }

    /// The number of the byte expected next, valid if [`flags::ACK`] is set.
    #[inline]
    pub const fn acknowledgment_number(&self) -> u32 {
        self.acknowledgment_number.get()
    }

    /// Length in bytes, options included: 20 to 60 in every checked header.
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        (self.data_offset >> 4) as usize * 4
    }

    /// The [`flags`].
    #[inline]
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// The number of bytes that the sender is ready to receive, unscaled.
    #[inline]
    pub const fn window(&self) -> u16 {
        self.window.get()
    }

    /// The checksum, as sent.
    #[inline]
    pub const fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// The end of urgent data, valid if [`flags::URG`] is set.
    #[inline]
    pub const fn urgent_pointer(&self) -> u16 {
        self.urgent_pointer.get()
    }
}

/// A checked view of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct TcpView<'a> {
    header: &'a TcpHeader,
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> TcpView<'a> {
    /// The view of the segment in `bytes`, an IP packet's payload.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end within the header (options included), or if its length is
    /// below 20.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let cut = |wanted| Malformed::cut(Header::Tcp, wanted, bytes.len());
        let Ok((header, rest)) = TcpHeader::ref_from_prefix(bytes) else {
            return Err(cut(HEADER_BYTES));
        };
        let Some(option_bytes) = header.header_bytes().checked_sub(HEADER_BYTES) else {
            return Err(Malformed::inconsistent(Header::Tcp, "data offset"));
        };
        let Some((options, payload)) = rest.split_at_checked(option_bytes) else {
            return Err(cut(header.header_bytes()));
        };
        Ok(Self { header, options, payload })
    }

    /// The header's options: up to 40 bytes.
    #[inline]
    pub const fn options(&self) -> &'a [u8] {
        self.options
    }

    /// The segment's data.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl std::ops::Deref for TcpView<'_> {
    type Target = TcpHeader;

    #[inline]
    fn deref(&self) -> &TcpHeader {
        self.header
    }
}

/// Lowers the maximum segment size that a SYN announces to `mss_max_bytes` and corrects the
/// checksum (RFC 9293, section 3.2; RFC 1624). Never raises or adds one. Returns whether the size
/// was lowered.
///
/// Only the header of `segment` is read. A segment without SYN, or with a header that is cut or
/// inconsistent, is left unchanged.
///
/// ```
/// use hotloop_packet::{build::tcp, tcp::clamp_mss};
///
/// let mut frame = tcp().tcp_options(&[2, 4, 0x05, 0xb4]).build();
/// assert!(clamp_mss(&mut frame[34..], 1440));
/// assert_eq!(frame[54..], [2, 4, 0x05, 0xa0]);
/// assert!(!clamp_mss(&mut frame[34..], 1460));
/// ```
pub fn clamp_mss(segment: &mut [u8], mss_max_bytes: u16) -> bool {
    const CHECKSUM_OFFSET: usize = 16;
    let header_bytes = match TcpView::parse(segment) {
        Ok(view) if view.flags() & flags::SYN != 0 => view.header_bytes(),
        _ => return false,
    };
    let Some(header) = segment.get_mut(..header_bytes) else { return false };
    let (mut offset, mut is_lowered) = (HEADER_BYTES, false);
    while let Some((kind, option_bytes)) = option_at(header, offset) {
        if kind == OPTION_MSS
            && option_bytes == OPTION_MSS_BYTES
            && let Some(field) = header.get_mut(offset + 2..offset + 4)
            && let mss = u16::from_be_bytes([field[0], field[1]])
            && mss > mss_max_bytes
        {
            field.copy_from_slice(&mss_max_bytes.to_be_bytes());
            // At an odd offset, two bytes count as if swapped (RFC 1071, section 2 (B)).
            let is_odd = offset % 2 == 1;
            let word = |value: u16| if is_odd { value.swap_bytes() } else { value };
            if let Some(Ok(sum)) = header.get_mut(CHECKSUM_OFFSET..).map(U16::mut_from_prefix) {
                sum.0.set(checksum::update(sum.0.get(), word(mss), word(mss_max_bytes)));
            }
            is_lowered = true;
        }
        offset += option_bytes;
    }
    is_lowered
}

const OPTION_END: u8 = 0;
const OPTION_NONE: u8 = 1;
const OPTION_MSS: u8 = 2;
const OPTION_MSS_BYTES: usize = 4;

/// Kind and length in bytes of the option at `offset` of a header. `None` at the end of the list,
/// or if the option is cut or too short.
fn option_at(header: &[u8], offset: usize) -> Option<(u8, usize)> {
    let rest = header.get(offset..)?;
    match *rest.first()? {
        OPTION_END => None,
        OPTION_NONE => Some((OPTION_NONE, 1)),
        kind => {
            let option_bytes = usize::from(*rest.get(1)?);
            (2..=rest.len()).contains(&option_bytes).then_some((kind, option_bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::{build::tcp, checksum};

    #[test]
    fn fields() {
        let frame = tcp()
            .from("10.0.0.1:1000")
            .to("192.0.2.1:80")
            .tcp_flags(flags::SYN | flags::ACK)
            .sequence(7, 9)
            .tcp_options(&[2, 4, 5, 0xb4])
            .payload(b"hello")
            .build();
        let view = TcpView::parse(&frame[34..]).unwrap();
        assert_eq!((view.source_port(), view.destination_port()), (1000, 80));
        assert_eq!((view.sequence_number(), view.acknowledgment_number()), (7, 9));
        assert_eq!((view.header_bytes(), view.flags()), (24, 0x12));
        assert_eq!((view.window(), view.urgent_pointer()), (65_535, 0));
        assert_eq!((view.options(), view.payload()), (&[2, 4, 5, 0xb4][..], &b"hello"[..]));
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(checksum::transport_v4(source, destination, 6, &frame[34..]), 0);
    }

    /// All combinations of the six flags of RFC 9293, against a list of the possible ones.
    #[test]
    fn impossible_flags_are_recognised() {
        const FIN: u8 = 1;
        const SYN: u8 = 2;
        const RST: u8 = 4;
        const PSH: u8 = 8;
        const ACK: u8 = 16;
        const URG: u8 = 32;
        let possible =
            [SYN, SYN | URG, SYN | ACK, RST, RST | ACK, FIN | ACK, FIN | ACK | URG, ACK, ACK | URG];
        for flags in 0..64 {
            let expected = possible.contains(&(flags & !PSH));
            for congestion in [0, 0x40, 0x80, 0xc0] {
                assert_eq!(are_flags_possible(flags | congestion), expected, "{flags:#08b}");
            }
        }
    }

    #[test]
    fn impossible_headers_are_refused() {
        let frame = tcp().tcp_options(&[1; 4]).build();
        for length in 0..24 {
            let error = TcpView::parse(&frame[34..34 + length]).unwrap_err();
            assert!(matches!(error, Malformed::Cut { header: Header::Tcp, .. }));
        }
        let mut bytes = frame[34..].to_vec();
        bytes[12] = 0x40;
        let expected = Malformed::inconsistent(Header::Tcp, "data offset");
        assert_eq!(TcpView::parse(&bytes).unwrap_err(), expected);
    }

    /// The segment's options after clamping; the checksum is checked, too.
    fn clamped(options: &[u8], mss_max_bytes: u16) -> (bool, Vec<u8>) {
        let frame = tcp().tcp_flags(flags::SYN | flags::ACK).tcp_options(options).payload([7; 9]);
        let mut frame = frame.build();
        let is_lowered = clamp_mss(&mut frame[34..], mss_max_bytes);
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(checksum::transport_v4(source, destination, 6, &frame[34..]), 0);
        (is_lowered, TcpView::parse(&frame[34..]).unwrap().options().to_vec())
    }

    #[test]
    fn segment_sizes_are_lowered_and_never_raised() {
        let mss = |high, low| vec![2, 4, high, low];
        assert_eq!(clamped(&mss(0x05, 0xb4), 1440), (true, mss(0x05, 0xa0)));
        assert_eq!(clamped(&mss(0x05, 0xa0), 1440), (false, mss(0x05, 0xa0)));
        assert_eq!(clamped(&mss(0, 0), 1440), (false, mss(0, 0)));
        assert_eq!(clamped(&mss(0xff, 0xff), 0), (true, mss(0, 0)));
        assert_eq!(clamped(&[], 1440), (false, vec![]));
        // After others, at an odd offset, and more than once.
        let among = [4, 2, 1, 2, 4, 0x05, 0xb4, 1, 3, 3, 7, 2, 4, 0x10, 0, 0];
        let expected = vec![4, 2, 1, 2, 4, 0x05, 0xa0, 1, 3, 3, 7, 2, 4, 0x05, 0xa0, 0];
        assert_eq!(clamped(&among, 1440), (true, expected));
    }

    #[test]
    fn what_announces_no_segment_size_stays_as_it_is() {
        // After the end, within another option, of a wrong length, cut.
        for options in [
            [0, 2, 4, 0x05, 0xb4, 0, 0, 0],
            [254, 6, 2, 4, 0x05, 0xb4, 0, 0],
            [2, 5, 0x05, 0xb4, 0, 0, 0, 0],
            [2, 3, 0x05, 0, 0, 0, 0, 0],
            [1, 1, 1, 1, 1, 2, 4, 0x05],
            [254, 0, 2, 4, 0x05, 0xb4, 0, 0],
            [1, 1, 1, 1, 1, 1, 1, 2],
        ] {
            assert_eq!(clamped(&options, 500), (false, options.to_vec()));
        }
        let mut frame = tcp().tcp_flags(flags::ACK).tcp_options(&[2, 4, 0x05, 0xb4]).build();
        let before = frame.clone();
        assert!(!clamp_mss(&mut frame[34..], 500));
        for len_bytes in 0..24 {
            assert!(!clamp_mss(&mut frame[34..34 + len_bytes], 500));
        }
        assert_eq!(frame, before);
    }

    proptest! {
        #[test]
        fn checksums_stay_right(
            options in prop::collection::vec(any::<u8>(), 40),
            nothing_bytes in 0usize..36,
            mss_max_bytes: u16,
        ) {
            let mut options = options;
            options[..nothing_bytes].fill(OPTION_NONE);
            options[nothing_bytes..nothing_bytes + 2].copy_from_slice(&[2, 4]);
            let (is_lowered, after) = clamped(&options, mss_max_bytes);
            let mss = |options: &[u8]| {
                u16::from_be_bytes([options[nothing_bytes + 2], options[nothing_bytes + 3]])
            };
            prop_assert_eq!(mss(&after), mss(&options).min(mss_max_bytes));
            prop_assert!(is_lowered || after == options);
        }
    }
}
