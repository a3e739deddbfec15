//! Filters of packets: pcap-filter expressions, compiled by libpcap and run for the packets of a burst together.
//!
//! Not by DPDK's compiler of such programs: it takes a whole mbuf for each packet and a call, which is slower, and
//! that of 22.11 compiles tests of masks below 128 wrongly.

mod burst;
mod classic;
mod need;

use crate::lock::lock;
use crate::{Eal, Error};
use classic::Instruction;
use hotloop_dpdk_sys as sys;
use hotloop_stage::tap;
use hotloop_stage::tap::{Needs, Seen};
use std::ffi::{CStr, CString, c_int};
use std::fmt;
use std::sync::Mutex;

/// `DLT_EN10MB` of pcap/dlt.h.
const ETHERNET: c_int = 1;

/// What a filter that matches returns: more than any frame has. Only whether it is 0 matters.
const SNAP_BYTES: c_int = 262_144;

/// `PCAP_NETMASK_UNKNOWN` of pcap/pcap.h: `ip broadcast` is refused then.
const NETMASK_UNKNOWN: u32 = 0xFFFF_FFFF;

/// A filter of Ethernet frames, as `tcpdump` takes it: pcap-filter(7), compiled by libpcap.
///
/// The packets of a burst go through its instructions together. Where it loops (`protochain`) or computes with what
/// it has read (`ip[2:2] * 2 < ip[4:2]`), they go one after another, which takes some times as long.
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
    /// Whether the packets of a burst go through it together.
    is_for_bursts: bool,
    needs: Option<Needs>,
    expression: String,
}

impl Filter {
    /// Compiles an expression. An empty one matches every frame.
    ///
    /// It takes milliseconds, and longer where the expression has names of hosts, which libpcap asks the
    /// system's resolver for: not on a control thread.
    ///
    /// # Errors
    /// [`Error::Filter`] with what libpcap says of an expression that is wrong.
    pub fn compile(_: Eal, expression: &str) -> Result<Self, Error> {
        let failed = |problem: String| Error::Filter { expression: expression.to_owned(), problem };
        let text = CString::new(expression)
            .map_err(|_| failed("it has a zero byte in it; write it as text".into()))?;
        let compiled = Compiled::of(&text).map_err(failed)?;
        let program = compiled.instructions();
        let is_for_bursts = burst::is_for_bursts(&program);
        let needs = if is_for_bursts { need::needs(&program) } else { None };
        Ok(Self { program, is_for_bursts, needs, expression: expression.to_owned() })
    }

    /// The expression that it was compiled from.
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

/// A program of classic BPF, as libpcap compiles it.
struct Compiled(sys::bpf_program);

impl Compiled {
    fn of(expression: &CStr) -> Result<Self, String> {
        /// libpcap before 1.8 keeps what it works on in static variables.
        static COMPILER: Mutex<()> = Mutex::new(());
        let _one_at_a_time = lock(&COMPILER);
        // SAFETY: 1. pcap_open_dead(3): takes any numbers.
        let handle = unsafe { sys::pcap_open_dead(ETHERNET, SNAP_BYTES) };
        if handle.is_null() {
            return Err("libpcap has no memory for it".into());
        }
        let mut program = sys::bpf_program::default();
        // SAFETY: 1. pcap_compile(3): an open handle, a program to be filled, and text that ends with a
        // zero.
        let result = unsafe {
            sys::pcap_compile(handle, &raw mut program, expression.as_ptr(), 1, NETMASK_UNKNOWN)
        };
        let compiled = if result == 0 {
            Ok(Self(program))
        } else {
            // SAFETY: 1. pcap_geterr(3): an open handle; the text is the handle's.
            let text = unsafe { sys::pcap_geterr(handle) };
            // SAFETY: 1. pcap_geterr(3): text that ends with a zero. 2. The handle is open.
            let text = unsafe { CStr::from_ptr(text) };
            Err(format!("libpcap says: {}", text.to_string_lossy()))
        };
        // SAFETY: 1. The handle is open, and closed here alone. 2. pcap_open_dead(3): a program does not
        // need it any more.
        unsafe { sys::pcap_close(handle) };
        compiled
    }

    fn instructions(&self) -> Vec<Instruction> {
        let count = self.0.bf_len as usize;
        // SAFETY: 1. pcap_compile(3): there are so many instructions, which live as long as the program.
        let instructions = unsafe { std::slice::from_raw_parts(self.0.bf_insns, count) };
        let instruction =
            |it: &sys::bpf_insn| Instruction { code: it.code, skips: (it.jt, it.jf), k: it.k };
        instructions.iter().map(instruction).collect()
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        // SAFETY: 1. pcap_freecode(3): a program of pcap_compile's, freed here alone.
        unsafe { sys::pcap_freecode(&raw mut self.0) };
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
