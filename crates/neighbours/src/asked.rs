//! The questions to a neighbour since its last answer.

use crate::link::Question;
use hotloop_packet::ethernet::MacAddress;
use hotloop_stage::Instant;

/// The time between two questions to all (RFC 4861, section 10: RETRANS_TIMER).
const ALL_NS: u64 = 1_000_000_000;

/// The time between two questions to the station that had the address. Two of them and one question
/// to all take less than a second, so a gateway's successor is found within two, even if a frame is
/// lost.
const ONE_NS: u64 = 400_000_000;

/// Number of questions to that station before all stations are asked.
const ONES_MAX: u64 = 2;

/// Time after the next question was due in which an answer may still come: packets wait for three
/// seconds, and after that nothing is asked for them.
const LATE_NS: u64 = 3_000_000_000;

/// The questions since the last answer, in a word that cores exchange: the time of the next one, in
/// nanoseconds, and in the low bits the kinds asked so far.
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

    /// The question that is due for a neighbour at this station, and the state after it.
    pub fn next(self, station: Option<MacAddress>, now: Instant) -> Option<(Question, Self)> {
        let (now, due_ns, ones) = (now.as_ns(), self.due_ns(), self.0 & Self::ONES);
        if now < due_ns {
            return None;
        }
        // With few packets, questions are rare: then one question that was not answered for long is
        // enough.
        let is_late = ones > 0 && now - due_ns >= ONE_NS;
        let is_silent = is_late || ones >= ONES_MAX || self.0 & Self::TO_ALL != 0;
        let (question, interval_ns, bits) = match station {
            Some(mac) if !is_silent => (Question::To(mac), ONE_NS, ones + 1),
            _ => (Question::ToAll, ALL_NS, ones | Self::TO_ALL),
        };
        let due_ns = now.saturating_add(interval_ns) & !Self::BITS;
        Some((question, Self(due_ns | Self::OPEN | bits)))
    }

    /// Whether a question has no answer yet.
    pub const fn is_open(self, now: Instant) -> bool {
        self.0 & Self::OPEN != 0 && now.as_ns() < self.due_ns().saturating_add(LATE_NS)
    }

    /// Whether an open question went to all stations.
    pub const fn is_to_all(self, now: Instant) -> bool {
        self.is_open(now) && self.0 & Self::TO_ALL != 0
    }

    /// The state after an answer. However often other stations claim the address, questions keep
    /// their distance.
    pub fn answered(self, now: Instant) -> Self {
        let soon_ns = now.as_ns().saturating_add(ONE_NS);
        Self(self.due_ns().min(soon_ns) & !Self::BITS)
    }
}
