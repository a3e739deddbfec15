//! The room left on the calling thread's stack.
//!
//! DPDK is built without stack probes in most distributions, and some frames of its drivers are
//! larger than the guard page below a stack: 16 KiB in net_pcap, 32 KiB in net_tap. On a stack with
//! less room than that, such a frame lies beyond the guard page, in other memory. So a driver is
//! called only if [`ROOM_BYTES`] are left. Functions with frames below a page, like all functions
//! on mempools and mbufs, need no check: the guard page stops them.
//!
//! The kernel guards the main thread's stack, which grows, with 1 MiB: no frame reaches beyond
//! that.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;

/// The largest frame of a function that a call into a driver leads to. The largest one found has
/// 32,808 bytes, in net_tap, plus an array of 16 bytes for each segment of a packet: at most 8 KiB.
const FRAME_BYTES_MAX: usize = 64 << 10;

/// Minimum room for calling a driver: frames add up along a call, and signal handlers come on top.
const ROOM_BYTES: usize = 4 * FRAME_BYTES_MAX;

thread_local! {
    /// The allowed range of this thread's stack pointer at a call: its start and its length. Length
    /// 0 until it was read.
    static ALLOWED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Whether there is room for a call, as far as is known.
#[inline(always)]
fn is_allowed() -> bool {
    let (start, bytes) = ALLOWED.get();
    pointer().wrapping_sub(start) < bytes
}

/// Checks that there is room for a call.
///
/// # Panics
/// If there isn't, or if the stack pointer is outside the stack that the system gave the thread.
#[inline(always)]
pub(crate) fn require() {
    if !is_allowed() {
        look();
    }
}

#[cold]
#[inline(never)]
fn look() {
    if let Err(NoRoom { found }) = check() {
        panic!("{}", message(&found));
    }
}

/// There is too little room, or another stack than the one that the system gave the thread.
pub(crate) struct NoRoom {
    /// Room left on the thread's stack, or why that is unknown.
    pub found: String,
}

/// The message of an error: the finding and the remedy.
pub(crate) fn message(found: &str) -> String {
    format!(
        "this thread has {found}, and DPDK's drivers need {ROOM_BYTES} bytes: give it a larger stack \
         (std::thread::Builder::stack_size; ulimit -s for a program's first thread), or call from \
         fewer functions deep"
    )
}

/// [`require`] for calls that can fail.
pub(crate) fn check() -> Result<(), NoRoom> {
    if is_allowed() {
        return Ok(());
    }
    let stack = limits().map_err(|error| NoRoom {
        found: format!("a stack whose limits the system does not tell ({error})"),
    })?;
    let start = stack.start.saturating_add(ROOM_BYTES);
    ALLOWED.set((start, stack.end.saturating_sub(start)));
    if is_allowed() {
        return Ok(());
    }
    let found = if stack.contains(&pointer()) {
        format!("{} bytes of its stack left", pointer() - stack.start)
    } else {
        "another stack than the system gave it".into()
    };
    Err(NoRoom { found })
}

/// The addresses of the calling thread's stack, without the guard page.
fn limits() -> Result<Range<usize>, std::io::Error> {
    let done = |result| match result {
        0 => Ok(()),
        code => Err(std::io::Error::from_raw_os_error(code)),
    };
    // SAFETY: 1. POSIX: this call always succeeds.
    let own = unsafe { libc::pthread_self() };
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: 1. The calling thread, which lives. 2. Room for the attributes, which are written.
    done(unsafe { libc::pthread_getattr_np(own, attributes.as_mut_ptr()) })?;
    let (mut start, mut bytes, mut guard_bytes) = (std::ptr::null_mut(), 0, 0);
    // SAFETY: 1. The attributes were written just now. 2. Both values are written during the call.
    let stack = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut start, &mut bytes) };
    // SAFETY: 1 and 2. As above.
    let guard = unsafe { libc::pthread_attr_getguardsize(attributes.as_ptr(), &mut guard_bytes) };
    // SAFETY: 1. The attributes were written above, and are not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    done(stack)?;
    done(guard)?;
    // Some versions of glibc count the guard page among the stack.
    Ok(start.addr() + guard_bytes..start.addr() + bytes)
}

/// The stack pointer, or an address near it.
#[inline(always)]
fn pointer() -> usize {
    // Not a local's address, because AddressSanitizer moves locals elsewhere.
    #[cfg(target_arch = "x86_64")]
    {
        let pointer: usize;
        // SAFETY: 1. Copies a register, and does nothing else.
        unsafe {
            std::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
        };
        pointer
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let here = MaybeUninit::<u8>::uninit();
        here.as_ptr().addr()
    }
}

#[cfg(test)]
mod tests {
    use super::FRAME_BYTES_MAX;
    use crate::Eal;
    use hotloop_test_tools::tool;
    use std::collections::BTreeSet;

    /// Libraries with functions that a call into a driver leads to, as far as they are installed.
    /// The names end before the version.
    const CALLED: [&str; 24] = [
        "librte_eal",
        "librte_ethdev",
        "librte_kvargs",
        "librte_net",
        "librte_bus_vdev",
        "librte_bus_pci",
        "librte_net_null",
        "librte_net_ring",
        "librte_net_pcap",
        "librte_net_af_packet",
        "librte_net_af_xdp",
        "librte_net_tap",
        "librte_net_memif",
        "librte_net_e1000",
        "librte_net_i40e",
        "librte_net_iavf",
        "librte_net_ice",
        "librte_net_igc",
        "librte_net_ixgbe",
        "librte_net_vmxnet3",
        "libpcap",
        "libbpf",
        "libxdp",
        "libbsd",
    ];

    /// Libraries of mbufs and mempools, which are called however little of the stack is left.
    const CALLED_ANYWHERE: [&str; 4] =
        ["librte_mbuf", "librte_mempool", "librte_mempool_ring", "librte_ring"];

    /// The smallest guard page.
    const PAGE_BYTES: usize = 4096;

    /// The number in `sub $0x3f38,%rsp`. A value that is added is written as a negative one.
    fn frame_bytes(line: &str) -> Option<usize> {
        let (before, bytes) = line.trim_end().strip_suffix(",%rsp")?.rsplit_once("$0x")?;
        let bytes = usize::from_str_radix(bytes, 16).ok()?.cast_signed();
        let is_sub = before.split_whitespace().last() == Some("sub");
        usize::try_from(bytes).ok().filter(|_| is_sub)
    }

    #[test]
    fn no_frame_of_what_is_called_is_larger_than_assumed() {
        assert_eq!(frame_bytes("  6a7a:\tsub    $0x3f38,%rsp"), Some(0x3F38));
        assert_eq!(frame_bytes("  6a7a:\tsub    $0xffffffffffffff80,%rsp"), None);
        assert_eq!(frame_bytes("  6a7a:\tadd    $0x3f38,%rsp"), None);
        if !cfg!(target_arch = "x86_64") {
            return println!("skipped: frames are looked for in the code of x86-64 alone");
        }
        if let Err(why) = tool("objdump") {
            return println!("skipped: {why}");
        }
        Eal::embedded_or_current().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let files = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
        let mut looked_at = BTreeSet::new();
        for file in files.collect::<BTreeSet<_>>() {
            let name = file.rsplit('/').next().unwrap().split(".so").next().unwrap();
            let max = match name {
                _ if CALLED_ANYWHERE.contains(&name) => PAGE_BYTES - 1,
                _ if CALLED.contains(&name) => FRAME_BYTES_MAX,
                _ => continue,
            };
            let run = tool("objdump").unwrap().args(["-d", "--no-show-raw-insn", file]).output();
            let code = String::from_utf8(run.unwrap().stdout).unwrap();
            let frames = code.lines().filter_map(frame_bytes);
            let largest = frames.max().unwrap_or_else(|| panic!("{file}: objdump shows no frame"));
            assert!(largest <= max, "{file}: a frame has {largest} bytes, {max} are assumed");
            looked_at.insert(name);
        }
        for name in CALLED[..6].iter().chain(&CALLED_ANYWHERE) {
            assert!(looked_at.contains(name), "{name} is not loaded: {looked_at:?}");
        }
    }
}
