//! pcap files (draft-ietf-opsawg-pcap).

use crate::frame::{ETHERNET, Frame};
use crate::input::{Input, Stop, within, word};

/// Lengths of a file's header and of a record's, in bytes.
const FILE_HEADER_BYTES: u32 = 24;
const RECORD_HEADER_BYTES: u32 = 16;

/// First word of a file with times in microseconds, or in nanoseconds.
const MICROSECONDS: u32 = 0xA1B2_C3D4;
pub const NANOSECONDS: u32 = 0xA1B2_3C4D;

/// The bits of the link type's field that hold its number.
const LINK_MASK: u32 = 0xFFFF;

#[derive(Debug)]
pub struct Reader {
    input: Input,
    fraction_ns: u64,
}

impl Reader {
    /// Reads the rest of a header whose first word was `magic`.
    pub fn new(magic: u32, mut input: Input) -> Result<Self, Stop> {
        input.is_big = [MICROSECONDS, NANOSECONDS].contains(&magic.swap_bytes());
        let fraction_ns = match if input.is_big { magic.swap_bytes() } else { magic } {
            MICROSECONDS => 1_000,
            NANOSECONDS => 1,
            _ => return Err(Stop::Damaged("neither pcap nor pcapng".into())),
        };
        let is_big = input.is_big;
        let header = input.part(FILE_HEADER_BYTES - 4)?;
        let link = word(is_big, header, 16).expect("a part of twenty bytes") & LINK_MASK;
        if link != ETHERNET {
            return Err(Stop::OtherLink(link));
        }
        Ok(Self { input, fraction_ns })
    }

    /// Reads the next frame. A frame on the wire may be longer than the snap length, which only
    /// limits its captured bytes.
    pub fn next(&mut self) -> Result<Frame<'_>, Stop> {
        let is_big = self.input.is_big;
        let header = self.input.part(RECORD_HEADER_BYTES)?;
        let field =
            |index: usize| word(is_big, header, 4 * index).expect("a part of sixteen bytes");
        let (seconds, fraction) = (field(0), field(1));
        let (captured_bytes, original_bytes) = (field(2), field(3));
        let timestamp_ns =
            u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.fraction_ns;
        let data = within(self.input.part(captured_bytes))?;
        Ok(Frame { timestamp_ns, data, original_bytes })
    }
}
