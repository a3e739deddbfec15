//! The stamp at the beginning of udp-source's payloads: the datagram's flow, number and sending
//! time.

use rustix::time::{ClockId, clock_gettime};

/// The length of a stamp in bytes: shorter payloads have no stamp.
pub const BYTES: usize = 24;

/// The beginning of a stamp, so that other datagrams are not mistaken for one.
const MAGIC: [u8; 4] = *b"hls1";

/// A datagram's number in its flow, and its sending time. In network byte order: the magic number,
/// the flow, the number, the time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    /// The number of the flow among all of its source's, from 0.
    pub flow: u32,
    /// The number of the datagram in its flow, from 0.
    pub number: u64,
    /// Sending time in nanoseconds of the source's `CLOCK_MONOTONIC`, which all programs on a
    /// machine share.
    pub sent_ns: u64,
}

impl Stamp {
    /// The stamp at the beginning of a payload, or `None`.
    #[inline]
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = payload.first_chunk()?;
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (flow, rest) = rest.split_first_chunk::<4>()?;
        let (number, sent_ns) = rest.split_first_chunk::<8>()?;
        (*magic == MAGIC).then_some(Self {
            flow: u32::from_be_bytes(*flow),
            number: u64::from_be_bytes(*number),
            sent_ns: u64::from_be_bytes(*sent_ns.first_chunk()?),
        })
    }

    /// The stamp's bytes in a payload.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> [u8; BYTES] {
        let Self { flow, number, sent_ns } = self;
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&flow.to_be_bytes());
        bytes[8..16].copy_from_slice(&number.to_be_bytes());
        bytes[16..].copy_from_slice(&sent_ns.to_be_bytes());
        bytes
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of stamps. All programs on a machine share it.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock starts at 0 when the machine boots.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let stamp = Stamp { flow: 7, number: 1 << 40, sent_ns: u64::MAX };
        let payload = [&stamp.bytes()[..], &[9; 100]].concat();
        assert_eq!(Stamp::read(&payload), Some(stamp));
        assert_eq!(&payload[..8], b"hls1\0\0\0\x07");
    }

    #[test]
    fn other_payloads_have_none() {
        let bytes = Stamp { flow: 0, number: 0, sent_ns: 0 }.bytes();
        assert_eq!(Stamp::read(&bytes[..BYTES - 1]), None);
        assert_eq!(Stamp::read(&[0; 100]), None);
        assert_eq!(Stamp::read(&[]), None);
    }
}
