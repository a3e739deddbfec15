//! Compiles expressions with libpcap, within limits.
//!
//! libpcap's functions recurse once per block of a program. Their time grows with the square of its
//! length, and the optimizer's faster than that: 5,000 terms overflowed a stack of 2 MiB, and 400
//! took 25 s. So an expression is first compiled without the optimizer, which shows its length, on
//! a thread of its own with a stack that suffices for anything that fits libpcap's memory. The
//! caller need not wait for that thread: the system's resolver, which libpcap asks for names, may
//! not answer for minutes. If the process ends, the thread ends with it: a thread in libpcap or the
//! resolver uses nothing that `exit` destroys, and EAL is never cleaned up.

use super::Filter;
use super::classic::Instruction;
use hotloop_dpdk_sys as sys;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// `PCAP_ERRBUF_SIZE` of pcap/pcap.h, the longest message.
const MESSAGE_BYTES: usize = 256;

/// The stack of a compiling thread. libpcap 1.10.3 limits a program to 64 MiB, so that its
/// functions recurse over 17 MiB at most, with a name of 15,000 addresses; an expression without
/// names takes less than 0.5 MiB.
const STACK_BYTES: usize = 64 << 20;

/// Maximum number of expressions that compile at a time. Abandoned ones count until libpcap is
/// done.
const COUNT_MAX: usize = 16;

/// Interval between checks whether the caller still waits.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Number of expressions being compiled.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// One of the [`COUNT_MAX`] slots.
struct Slot;

impl Slot {
    fn take() -> Option<Self> {
        let taken =
            COUNT.fetch_update(Relaxed, Relaxed, |count| (count < COUNT_MAX).then_some(count + 1));
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
        // The receiver may have given up.
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

/// Compiles twice, so that the optimizer never gets a program that would take it long.
fn optimized(expression: &CStr) -> Result<Vec<Instruction>, String> {
    let (count, max) = (compiled(expression, false, &mut [])?, Filter::INSTRUCTION_COUNT_MAX);
    if count > max {
        return Err(format!(
            "it becomes {count} instructions, and {max} are the most: say tcp or udp with ports, ip \
             or ip6 with hosts, or write fewer terms"
        ));
    }
    let mut instructions = vec![sys::sh_instruction { code: 0, jt: 0, jf: 0, k: 0 }; max];
    let count = compiled(expression, true, &mut instructions)?;
    let compiled = instructions.get(..count).ok_or("libpcap has made it longer")?;
    let instruction = |instruction: &sys::sh_instruction| Instruction {
        code: instruction.code,
        skips: (instruction.jt, instruction.jf),
        k: instruction.k,
    };
    Ok(compiled.iter().map(instruction).collect())
}

/// Returns the number of instructions that libpcap makes of an expression. Stores those that fit.
fn compiled(
    expression: &CStr,
    optimizes: bool,
    instructions: &mut [sys::sh_instruction],
) -> Result<usize, String> {
    let mut message = [0_u8; MESSAGE_BYTES];
    // SAFETY: 1. `expression` ends with a zero byte. 2. Both tables have the room passed as their
    // size.
    // 3. pcap_compile(3): since 1.8, which the build requires, several threads may call it. 4. The
    //    stack has room for it: `STACK_BYTES`.
    let count = unsafe {
        sys::sh_filter(
            expression.as_ptr(),
            optimizes,
            instructions.as_mut_ptr(),
            instructions.len() as u32,
            message.as_mut_ptr().cast(),
            message.len(),
        )
    };
    usize::try_from(count).map_err(|_| {
        let message = CStr::from_bytes_until_nul(&message).unwrap_or_default();
        format!("libpcap says: {}", message.to_string_lossy())
    })
}
