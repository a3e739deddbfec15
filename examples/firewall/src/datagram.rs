//! Datagrams in fragments, whose later fragments follow the first.

use crate::side::Side;
use hotloop::flow::Config;
use hotloop::packet::fragment::{FragmentId, FragmentView};

/// How long a datagram's fragments are waited for: as long as Linux waits.
const IDLE_NS: u64 = 30_000_000_000;

/// Maximum number of datagrams of a core that wait for fragments. Each takes a kilobyte.
const DATAGRAMS_MAX: usize = 2_000;

/// Number of blocks of eight bytes, the unit of fragments, in the longest datagram.
const BLOCKS: usize = 8192;

/// What its fragments share, and the side that they come from.
pub type DatagramKey = [u64; 6];

/// The key of a fragment from `side`.
pub fn key_of(id: FragmentId, side: Side) -> DatagramKey {
    let [a, b, c, d, e] = id.words();
    [a, b, c, d, e, side as u64]
}

/// The table's configuration. A full table refuses further datagrams.
pub const fn config() -> Config {
    Config::new(DATAGRAMS_MAX, IDLE_NS)
}

/// The blocks of a datagram that have passed, a bit for each, so that none passes again with other
/// contents: a receiver of IPv4 may use either (RFC 1858, section 4).
pub struct Datagram([u64; BLOCKS / 64]);

impl Datagram {
    /// A datagram of which nothing has passed.
    pub const EMPTY: Self = Self([0; BLOCKS / 64]);

    /// Adds a checked fragment. The last one stands for everything after it. Returns false, and adds
    /// nothing, if it overlaps another.
    pub fn add(&mut self, fragment: &FragmentView<'_>) -> bool {
        let start = fragment.offset_bytes() / 8;
        let stop =
            if fragment.more_fragments() { start + fragment.len_bytes() / 8 } else { BLOCKS };
        let is_new = (start..stop).all(|block| self.0[block / 64] >> (block % 64) & 1 == 0);
        for block in (start..stop).filter(|_| is_new) {
            self.0[block / 64] |= 1 << (block % 64);
        }
        is_new
    }

    /// Whether all fragments have passed.
    pub fn is_complete(&self) -> bool {
        self.0.iter().all(|blocks| *blocks == u64::MAX)
    }
}
