//! Which questions were asked for a neighbour, and whether it has answered.

use crate::link::Question;
use hotloop_packet::ethernet::MacAddress;
use hotloop_stage::Instant;

/// The time between two questions to all (RFC 4861, section 10: RETRANS_TIMER).
const ALL_NS: u64 = 1_000_000_000;

/// The time between two questions to the station that had the address. Two of them and one to all are
/// over within a second: so a gateway's successor is found within two, though a frame is lost.
const ONE_NS: u64 = 400_000_000;

/// How many questions that station is asked before all are.
const ONES_MAX: u64 = 2;

/// How long after the next question was due an answer may still come: three seconds of packets that wait,
/// and nothing is asked for after them.
const LATE_NS: u64 = 3_000_000_000;

/// The questions since the last answer, in a word that cores exchange: when the next is due, in
/// nanoseconds, and in the low bits what was asked.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Asked(pub u64);

impl Asked {
    const ONES: u64 = 0b0011;
    const TO_ALL: u64 = 0b0100;
    const OPEN: u64 = 0b1000;
    const BITS: u64 = 0b1111;

    const fn due_ns(self) -> u64 {
        self.0 & !Self::BITS
    }

    /// The question that is due for a neighbour whose station this is, and what was asked then.
    pub fn next(self, station: Option<MacAddress>, now: Instant) -> Option<(Question, Self)> {
        let (now, due_ns, ones) = (now.as_ns(), self.due_ns(), self.0 & Self::ONES);
        if now < due_ns {
            return None;
        }
        // With few packets, questions are seldom: then one that was not answered for long is enough.
        let is_late = ones > 0 && now - due_ns >= ONE_NS;
        let is_silent = is_late || ones >= ONES_MAX || self.0 & Self::TO_ALL != 0;
        let (question, interval_ns, bits) = match station {
            Some(mac) if !is_silent => (Question::To(mac), ONE_NS, ones + 1),
            _ => (Question::ToAll, ALL_NS, ones | Self::TO_ALL),
        };
        let due_ns = now.saturating_add(interval_ns) & !Self::BITS;
        Some((question, Self(due_ns | Self::OPEN | bits)))
    }

    /// Whether a question was asked to which there is no answer yet.
    pub const fn is_open(self, now: Instant) -> bool {
        self.0 & Self::OPEN != 0 && now.as_ns() < self.due_ns().saturating_add(LATE_NS)
    }

    /// Whether one of these was for any station.
    pub const fn is_to_all(self, now: Instant) -> bool {
        self.is_open(now) && self.0 & Self::TO_ALL != 0
    }

    /// After an answer. However often other stations claim the address, questions keep their distance.
    pub fn answered(self, now: Instant) -> Self {
        let soon_ns = now.as_ns().saturating_add(ONE_NS);
        Self(self.due_ns().min(soon_ns) & !Self::BITS)
    }
}
