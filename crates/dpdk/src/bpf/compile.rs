//! Compiles expressions, by libpcap, within bounds.
//!
//! libpcap's functions recurse as often as a program has blocks, and take time that grows with the square of its length,
//! its optimizer with more than that: 5,000 terms overflowed a stack of 2 MiB, and 400 took 25 s. So an expression is
//! compiled without the optimizer first, which shows how long it is, on a thread of its own with a stack that suffices
//! for whatever libpcap has memory for. Nobody needs to wait for that thread: the system's resolver, which libpcap asks
//! for names, may not answer for minutes. A program that ends takes it along: a thread in libpcap or the resolver uses
//! nothing that `exit` takes away, and EAL is never cleaned up.

use super::Filter;
use super::classic::Instruction;
use hotloop_dpdk_sys as sys;
use std::ffi::{CStr, CString, c_int};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// `DLT_EN10MB` of pcap/dlt.h.
const ETHERNET: c_int = 1;

/// The length that a matching filter returns, above that of any frame. Only 0 or not 0 matters.
const SNAP_BYTES: c_int = 262_144;

/// `PCAP_NETMASK_UNKNOWN` of pcap/pcap.h: `ip broadcast` is refused then.
const NETMASK_UNKNOWN: u32 = 0xFFFF_FFFF;

/// The stack of a thread that compiles. libpcap 1.10.3 gives a program 64 MiB at most, so that its functions recurse
/// over 17 MiB at most, with a name of 15,000 addresses; an expression without names takes less than 0.5 MiB.
const STACK_BYTES: usize = 64 << 20;

/// The most expressions that compile at a time. Those that were given up count until libpcap is done.
const COUNT_MAX: usize = 16;

/// How often it is looked whether the caller still waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// How many expressions are being compiled.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// One of [`COUNT_MAX`].
struct Slot;

impl Slot {
    fn take() -> Option<Self> {
        let taken = COUNT.fetch_update(Relaxed, Relaxed, |it| (it < COUNT_MAX).then_some(it + 1));
        taken.ok().map(|_| Self)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Relaxed);
    }
}

/// The program of an expression, while the caller waits for it.
pub(super) fn program(
    expression: &str,
    waits: &mut dyn FnMut() -> bool,
) -> Result<Vec<Instruction>, String> {
    let (length, max) = (expression.len(), Filter::EXPRESSION_BYTES_MAX);
    if length > max {
        return Err(format!(
            "it has {length} bytes, and {max} is the most: write net and portrange for many hosts \
             and ports, or take more packets and filter the file"
        ));
    }
    let text =
        CString::new(expression).map_err(|_| "it has a zero byte in it; write it as text")?;
    let slot = Slot::take().ok_or_else(|| {
        format!(
            "{COUNT_MAX} filters are being compiled, which takes long where names of hosts are not \
             answered for: try again later, and write addresses"
        )
    })?;
    let (hand_over, compiled) = sync_channel(1);
    let compile = move || {
        let program = optimized(&text);
        drop(slot);
        // Nobody may wait any more.
        let _ = hand_over.send(program);
    };
    let thread = Builder::new().name("filter".into()).stack_size(STACK_BYTES).spawn(compile);
    thread.map_err(|error| format!("no thread to compile it: {error}; try again"))?;
    let deadline = Instant::now() + Filter::COMPILE_TIME_MAX;
    loop {
        match compiled.recv_timeout(LOOK_INTERVAL) {
            Ok(program) => return program,
            Err(RecvTimeoutError::Disconnected) => return Err("its compiler panicked".into()),
            Err(RecvTimeoutError::Timeout) if !waits() => return Err("it was given up".into()),
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!(
                    "it is not compiled within {} s: write addresses for names of hosts, or fewer \
                     terms",
                    Filter::COMPILE_TIME_MAX.as_secs()
                ));
            }
        }
    }
}

/// Compiles twice: the optimizer gets nothing that it would take long for.
fn optimized(expression: &CStr) -> Result<Vec<Instruction>, String> {
    let (count, max) = (Compiled::of(expression, false)?.0.bf_len, Filter::INSTRUCTION_COUNT_MAX);
    if count as usize > max {
        return Err(format!(
            "it becomes {count} instructions, and {max} are the most: say tcp or udp with ports, ip \
             or ip6 with hosts, or write fewer terms"
        ));
    }
    Ok(Compiled::of(expression, true)?.instructions())
}

/// A program of classic BPF, as libpcap compiles it.
struct Compiled(sys::bpf_program);

impl Compiled {
    fn of(expression: &CStr, optimizes: bool) -> Result<Self, String> {
        // SAFETY: 1. pcap_open_dead(3): takes any numbers.
        let handle = unsafe { sys::pcap_open_dead(ETHERNET, SNAP_BYTES) };
        if handle.is_null() {
            return Err("libpcap has no memory for it".into());
        }
        let mut program = sys::bpf_program::default();
        let (text, optimizes) = (expression.as_ptr(), c_int::from(optimizes));
        // SAFETY: 1. pcap_compile(3): an open handle, a program to be filled, and text that ends with a
        // zero. 2. pcap_compile(3): since 1.8, which the build asks for, several threads may call it.
        // 3. The stack has room for it: `STACK_BYTES`.
        let result = unsafe {
            sys::pcap_compile(handle, &raw mut program, text, optimizes, NETMASK_UNKNOWN)
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
        // SAFETY: 1. pcap_compile(3): `bf_insns` holds `bf_len` instructions, and lives as long as the program.
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
