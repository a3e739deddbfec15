//! Filters of packets: pcap-filter expressions, compiled by libpcap and run for the packets of a burst together.
//!
//! DPDK's own compiler for such programs is not used: it needs a whole mbuf and a call for each
//! packet, which is slower, and in 22.11 it compiles tests of masks below 128 wrongly.

mod burst;
mod classic;
mod compile;
mod need;

use crate::{Eal, Error};
use classic::Instruction;
use hotloop_stage::tap;
use hotloop_stage::tap::{Needs, Seen};
use std::fmt;
use std::time::Duration;

/// Number of characters that an error quotes of an expression that is too long.
const SHOWN_COUNT_MAX: usize = 60;

/// A filter of Ethernet frames, in the syntax of `tcpdump`: pcap-filter(7), compiled by libpcap.
///
/// The packets of a burst run through its instructions together. If the program loops
/// (`protochain`) or computes with loaded values (`ip[2:2] * 2 < ip[4:2]`), they run one after
/// another, which takes several times as long.
///
/// ```
/// use hotloop_dpdk::{Eal, Filter};
/// use hotloop_packet::{build::tcp, memory::MemPacket};
/// use hotloop_stage::tap::{Filter as _, Seen};
///
/// let filter = Filter::compile(Eal::embedded()?, "tcp port 443 and host 198.51.100.7")?;
/// let packets = ["198.51.100.7:443", "198.51.100.7:80"].map(|to| {
///     MemPacket::new(&tcp().from("192.0.2.1:9").to(to).build())
/// });
/// assert_eq!(filter.select(&packets.each_ref().map(|packet| Seen::of(packet))), 0b01);
/// # Ok::<(), hotloop_dpdk::Error>(())
/// ```
pub struct Filter {
    program: Vec<Instruction>,
    /// Whether the packets of a burst run through the program together.
    is_for_bursts: bool,
    needs: Option<Needs>,
    expression: String,
}

impl Filter {
    /// The longest expression, in bytes.
    pub const EXPRESSION_BYTES_MAX: usize = 512;

    /// Maximum number of instructions of an expression, before libpcap optimizes them. `host
    /// 10.0.0.1` is 24 of them, and 8 with `ip`; `port 443` is 52, and 20 with `tcp`; `portrange
    /// 80-90` is 82.
    pub const INSTRUCTION_COUNT_MAX: usize = 4096;

    /// Time limit of [`compile`](Self::compile).
    pub const COMPILE_TIME_MAX: Duration = Duration::from_secs(10);

    /// Compiles an expression. An empty one matches every frame.
    ///
    /// This takes less than a millisecond for a few terms, and up to a second for the longest
    /// expression. Host names are looked up with the system's resolver, so don't call this on a
    /// control thread. Compilation runs on a thread of its own, so that any stack suffices, and
    /// several expressions can compile at a time.
    ///
    /// # Errors
    /// [`Error::Filter`] with libpcap's message if the expression is wrong. Also if it is longer
    /// than [`EXPRESSION_BYTES_MAX`](Self::EXPRESSION_BYTES_MAX) or becomes more than
    /// [`INSTRUCTION_COUNT_MAX`](Self::INSTRUCTION_COUNT_MAX), after
    /// [`COMPILE_TIME_MAX`](Self::COMPILE_TIME_MAX), and while 16 others are being compiled.
    pub fn compile(eal: Eal, expression: &str) -> Result<Self, Error> {
        Self::compile_while(eal, expression, || true)
    }

    /// [`compile`](Self::compile) for as long as `waits` returns true: it is called every 10 ms. An
    /// abandoned compilation goes on in the background until libpcap and the resolver are done, and
    /// counts as being compiled until then.
    ///
    /// # Errors
    /// As for [`compile`](Self::compile), and [`Error::Filter`] if abandoned.
    pub fn compile_while(
        _: Eal,
        expression: &str,
        mut waits: impl FnMut() -> bool,
    ) -> Result<Self, Error> {
        let program = compile::program(expression, &mut waits).map_err(|problem| {
            let mut shown: String = expression.chars().take(SHOWN_COUNT_MAX).collect();
            if shown.len() < expression.len() {
                shown.push('…');
            }
            Error::Filter { expression: shown, problem }
        })?;
        let is_for_bursts = burst::is_for_bursts(&program);
        let needs = if is_for_bursts { need::needs(&program) } else { None };
        Ok(Self { program, is_for_bursts, needs, expression: expression.to_owned() })
    }

    /// The source expression.
    #[must_use]
    pub fn expression(&self) -> &str {
        &self.expression
    }
}

impl tap::Filter for Filter {
    fn needs(&self) -> Option<Needs> {
        self.needs
    }

    fn select(&self, packets: &[Seen<'_>]) -> u64 {
        if self.is_for_bursts {
            return burst::select(&self.program, packets);
        }
        let bit = |(index, seen)| u64::from(classic::matches(&self.program, seen)) << index;
        packets.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("expression", &self.expression).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Eal;
    use hotloop_packet::memory::MemPacket;
    use hotloop_stage::tap::Filter as _;

    #[test]
    fn packets_that_go_together_match_as_each_would_alone() {
        let eal = Eal::embedded_or_current().expect("EAL starts anywhere");
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut byte = || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (state >> 56) as u8
        };
        let expressions = [
            "",
            "ip or vlan",
            "ether[0] < 0x80 and len < 30",
            "ether[0] & 0x80 = 0",
            "ether[1] & 0x01 = 0 and ether[0] != 0x08",
            "ether[0] > 7 and ether[1] >= 8 or ether[2:2] = 0",
            "ether[ether[0]] = 8 or ether[len - 1] = ether[1]",
        ];
        for expression in expressions {
            let together = Filter::compile(eal, expression).unwrap();
            let alone =
                Filter { is_for_bursts: false, ..Filter::compile(eal, expression).unwrap() };
            let mut counts = [0; 2];
            for count in (0..=64).cycle().take(200) {
                let frame = |at| (0..at % 60).map(|_| byte() & byte() & 0x8F).collect::<Vec<_>>();
                let frames: Vec<_> = (0..count).map(frame).collect();
                let packets: Vec<_> = frames.iter().map(|frame| MemPacket::new(frame)).collect();
                let seen: Vec<_> = packets.iter().map(Seen::of).collect();
                let matching = together.select(&seen);
                assert_eq!(alone.select(&seen), matching, "{expression}: {frames:x?}");
                counts[0] += count as u32 - matching.count_ones();
                counts[1] += matching.count_ones();
            }
            assert!(counts[1] > 0 && (counts[0] > 0 || expression.is_empty()), "{expression}");
        }
    }
}
