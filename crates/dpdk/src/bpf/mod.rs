//! Filters of packets: pcap-filter expressions, compiled to the CPU's own code where DPDK is fit for that.

mod classic;

use crate::lock::lock;
use crate::{Eal, Error};
use classic::Instruction;
use hotloop_dpdk_sys::{self as sys, RawMbuf};
use hotloop_stage::tap;
use hotloop_stage::tap::Seen;
use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::AtomicU16;

/// `DLT_EN10MB` of pcap/dlt.h.
const ETHERNET: c_int = 1;

/// What a filter that matches returns: more than any frame has. Only whether it is 0 matters.
const SNAP_BYTES: c_int = 262_144;

/// `PCAP_NETMASK_UNKNOWN` of pcap/pcap.h: `ip broadcast` is refused then.
const NETMASK_UNKNOWN: u32 = 0xFFFF_FFFF;

/// How many segments a packet may have that the CPU's own code looks at.
const SEGMENT_COUNT_MAX: usize = 64;

/// The most bytes that a segment's length can say.
const SEGMENT_BYTES_MAX: usize = u16::MAX as usize;

/// A filter of Ethernet frames, as `tcpdump` takes it: pcap-filter(7), compiled by libpcap.
///
/// DPDK makes the CPU's own code of it. Where it can't, or not rightly, the filter is interpreted, which
/// takes some times as long: [`is_native`](Self::is_native) says which.
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
    native: Option<Native>,
    program: Vec<Instruction>,
    expression: String,
}

/// A program as DPDK compiles it.
struct Native {
    /// Invariant: a loaded program that takes a pointer to an mbuf, made by DPDK of a classic BPF program that
    /// [is fit](classic::is_fit_for_dpdk) for it, and destroyed with this alone. Established by
    /// [`compile`](Self::compile).
    program: NonNull<sys::rte_bpf>,
    /// Invariant: the code of `program`, which lives as long.
    code: unsafe extern "C" fn(*mut c_void) -> u64,
}

// SAFETY: 1. rte_bpf.h: a loaded program is not changed by running it; it belongs to no thread.
unsafe impl Send for Native {}
// SAFETY: 1. As above: each run has registers and a stack of its own.
unsafe impl Sync for Native {}

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
        let native = if classic::is_fit_for_dpdk(&program) { compiled.native() } else { None };
        Ok(Self { native, program, expression: expression.to_owned() })
    }

    /// Whether it runs as the CPU's own code. If not, the expression has something that DPDK does not run
    /// rightly, such as a test of single bits (`tcp[tcpflags] & tcp-syn != 0`) or a computed offset; or DPDK has no
    /// compiler for this CPU; or the system doesn't let memory be made executable.
    #[must_use]
    pub const fn is_native(&self) -> bool {
        self.native.is_some()
    }

    /// The expression that it was compiled from.
    #[must_use]
    pub fn expression(&self) -> &str {
        &self.expression
    }
}

impl Native {
    /// Whether a packet matches, all of whose bytes are in one segment, of at most [`SEGMENT_BYTES_MAX`].
    /// `head` is any mbuf, such as that of the packet before: to write a whole one for each packet would take
    /// as long as many a program does.
    #[inline(always)]
    fn matches_segment(&self, head: &mut RawMbuf, bytes: &[u8]) -> bool {
        (head.buf_addr, head.data_off) = (bytes.as_ptr().cast_mut(), 0);
        (head.next, head.nb_segs) = (ptr::null_mut(), 1);
        (head.pkt_len, head.data_len) = (bytes.len() as u32, bytes.len() as u16);
        // SAFETY: 1. One segment of `bytes`, the last, whose length is its own and the packet's.
        unsafe { self.run(&raw mut *head) }
    }

    /// Whether a packet matches that has several segments, or one that is longer than an mbuf's. Nothing
    /// where it has too many.
    #[cold]
    fn matches_segments(&self, seen: &Seen<'_>) -> Option<bool> {
        let mut chain = [const { segment_of(&[], ptr::null_mut()) }; SEGMENT_COUNT_MAX];
        let (mut count, mut total_bytes) = (0, 0);
        seen.each_segment(usize::MAX, &mut |bytes| {
            for part in bytes.chunks(SEGMENT_BYTES_MAX) {
                if let Some(segment) = chain.get_mut(count) {
                    *segment = segment_of(part, ptr::null_mut());
                }
                total_bytes += part.len();
                count += 1;
            }
        });
        let chain = chain.get_mut(..count.max(1))?;
        (chain[0].pkt_len, chain[0].nb_segs) = (total_bytes as u32, chain.len() as u16);
        let link = |next, segment: &mut RawMbuf| {
            segment.next = next;
            &raw mut *segment
        };
        let head = chain.iter_mut().rev().fold(ptr::null_mut(), link);
        // SAFETY: 1. The first of a chain of segments, each over a part of the packet, which is borrowed;
        // the packet's length is the sum of theirs.
        Some(unsafe { self.run(head) })
    }

    /// Runs the program.
    ///
    /// # Safety
    /// 1. The head of a chain that ends with a null `next`, each segment of which has `data_len` readable
    ///    bytes at `buf_addr + data_off`; `pkt_len` of the head is their sum.
    #[inline(always)]
    unsafe fn run(&self, head: *mut RawMbuf) -> bool {
        // SAFETY: 1. The program takes a pointer to an mbuf: the field's invariant. 2. Classic BPF only reads
        // the packet, with its lengths checked: those that the caller shows to be right. 3. No offset is so
        // large that the check fails: the program is fit for DPDK, by the field's invariant.
        (unsafe { (self.code)(head.cast()) }) != 0
    }
}

impl tap::Filter for Filter {
    fn select(&self, packets: &[Seen<'_>]) -> u64 {
        let (mut selected, mut head) = (0, segment_of(&[], ptr::null_mut()));
        for (index, seen) in packets.iter().enumerate() {
            let is_one = seen.bytes.len() == seen.total_bytes;
            let matches = match &self.native {
                Some(native) if is_one && seen.total_bytes <= SEGMENT_BYTES_MAX => {
                    Some(native.matches_segment(&mut head, seen.bytes))
                }
                Some(native) => native.matches_segments(seen),
                None => None,
            };
            let matches = matches.unwrap_or_else(|| classic::matches(&self.program, seen));
            selected |= u64::from(matches) << index;
        }
        selected
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: 1. It is loaded, and destroyed here alone: the field's invariant. 2. Nobody runs it:
        // it is borrowed exclusively.
        unsafe { sys::rte_bpf_destroy(self.program.as_ptr()) };
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("expression", &self.expression)
            .field("is_native", &self.is_native())
            .finish_non_exhaustive()
    }
}

/// A segment of an mbuf over `bytes`, of at most [`SEGMENT_BYTES_MAX`], for reading alone.
#[inline(always)]
const fn segment_of(bytes: &[u8], next: *mut RawMbuf) -> RawMbuf {
    RawMbuf {
        buf_addr: bytes.as_ptr().cast_mut(),
        buf_iova: 0,
        data_off: 0,
        refcnt: AtomicU16::new(1),
        nb_segs: 1,
        port: sys::SH_MBUF_PORT_INVALID,
        ol_flags: 0,
        packet_type: 0,
        pkt_len: 0,
        data_len: bytes.len() as u16,
        vlan_tci: 0,
        hash: [0; 8],
        vlan_tci_outer: 0,
        buf_len: bytes.len() as u16,
        pool: ptr::null_mut(),
        next,
        tx_offload: 0,
        shinfo: ptr::null_mut(),
        priv_size: 0,
        timesync: 0,
        dynfield1: [0; 9],
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

    /// The CPU's own code of a program that is fit for DPDK, where DPDK has some.
    fn native(&self) -> Option<Native> {
        // SAFETY: 1. A program of libpcap's, which lives.
        let converted = unsafe { sys::sh_bpf_convert(&raw const self.0) };
        if converted.is_null() {
            return None;
        }
        // SAFETY: 1. rte_bpf.h: what rte_bpf_convert returned is what rte_bpf_load takes.
        let program = unsafe { sys::rte_bpf_load(converted) };
        // SAFETY: 1. rte_bpf.h: it is to be freed so; rte_bpf_load has copied what it needs.
        unsafe { sys::rte_free(converted.cast()) };
        let program = NonNull::new(program)?;
        let mut jit = sys::rte_bpf_jit::default();
        // SAFETY: 1. A loaded program, and room for what is asked of it.
        let error = unsafe { sys::rte_bpf_get_jit(program.as_ptr(), &raw mut jit) };
        let Some(code) = jit.func.filter(|_| error == 0) else {
            // SAFETY: 1. It is loaded, and nobody else has it.
            unsafe { sys::rte_bpf_destroy(program.as_ptr()) };
            return None;
        };
        Some(Native { program, code })
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
    fn the_cpus_code_and_the_interpreter_agree() {
        let eal = Eal::embedded_or_current().expect("EAL starts anywhere");
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut byte = || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (state >> 56) as u8
        };
        for expression in ["", "ip or vlan", "ether[0] < 0x80 and len < 30", "ether[0] & 0x80 = 0"]
        {
            let native = Filter::compile(eal, expression).unwrap();
            assert_eq!(native.is_native(), cfg!(target_arch = "x86_64"), "{expression}");
            let interpreted = Filter { native: None, ..Filter::compile(eal, expression).unwrap() };
            let mut counts = [0; 2];
            for length in (0..60).cycle().take(3000) {
                let frame: Vec<_> = (0..length).map(|_| byte() & byte() & 0x8F).collect();
                let packet = MemPacket::new(&frame);
                let matches = native.select(&[Seen::of(&packet)]);
                let other = interpreted.select(&[Seen::of(&packet)]);
                assert_eq!(other, matches, "{expression}: {frame:?}");
                counts[matches as usize] += 1;
            }
            assert!(counts[1] > 0 && (counts[0] > 0 || expression.is_empty()), "{expression}");
        }
    }
}
