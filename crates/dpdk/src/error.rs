//! What can go wrong between this program and DPDK.

use crate::mempool::{MempoolNeed, MempoolReport};
use hotloop_dpdk_sys as sys;
use std::ffi::{CStr, c_int};
use std::fmt;

/// Why DPDK, or this crate, would not do what was asked. Each message says what was asked, what was
/// found, and what to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// EAL runs already, and starts once in a process.
    #[error(
        "EAL was to start with \"{wanted}\", but runs already with \"{running}\": it starts once in \
         a process; use Eal::current()"
    )]
    AlreadyInitialised {
        /// The arguments asked for.
        wanted: String,
        /// The arguments it runs with.
        running: String,
    },

    /// An argument for EAL that cannot be passed on.
    #[error("EAL argument \"{argument}\": {problem}")]
    EalArgument {
        /// The argument.
        argument: String,
        /// What is wrong with it, and the remedy.
        problem: String,
    },

    /// EAL did not start.
    #[error("EAL does not start with \"{arguments}\": {error} (EAL said: {said}); {remedy}")]
    EalInit {
        /// The arguments it was given.
        arguments: String,
        /// Its error code in words.
        error: String,
        /// What it logged.
        said: String,
        /// What to do.
        remedy: String,
    },

    /// A thread cannot be registered with EAL.
    #[error("this thread cannot be registered with EAL: {found}")]
    NoLcore {
        /// The reason, and the remedy.
        found: String,
    },

    /// The calling thread's stack has too little room left for DPDK's drivers, or is not the one that the
    /// system gave the thread.
    #[error(
        "this thread has {found}, and DPDK's drivers need {room} bytes: give it a larger stack \
         (std::thread::Builder::stack_size; ulimit -s for a program's first thread), or call from \
         fewer functions deep",
        room = crate::stack::ROOM_BYTES
    )]
    Stack {
        /// How much of the thread's stack is left, or why that is unknown.
        found: String,
    },

    /// An expression that is no filter.
    #[error("filter \"{expression}\": {problem}; pcap-filter(7) has the syntax")]
    Filter {
        /// The expression, or how it begins.
        expression: String,
        /// What is wrong with it.
        problem: String,
    },

    /// A device string that names no device this crate opens.
    #[error("device \"{device}\": {problem}; {remedy}")]
    DeviceString {
        /// The device string.
        device: String,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        remedy: String,
    },

    /// Another port has the device.
    #[error(
        "device \"{device}\": \"{name}\" is open already in this process; use that port, or give \
         this one a name of its own (net_null0, net_null1, ...)"
    )]
    DeviceInUse {
        /// The device string.
        device: String,
        /// The device's name.
        name: String,
    },

    /// The device's driver does not take it.
    #[error("device \"{device}\" does not come up: {error} (DPDK said: {said}); {remedy}")]
    Probe {
        /// The device string.
        device: String,
        /// DPDK's error code in words.
        error: String,
        /// What DPDK logged.
        said: String,
        /// What to do.
        remedy: String,
    },

    /// More queues than the device has.
    #[error(
        "device \"{device}\" has {max} {direction} queues, {wanted} are wanted: use fewer cores, or \
         give the device more queues{hint}"
    )]
    TooManyQueues {
        /// The device string.
        device: String,
        /// Which queues.
        direction: Direction,
        /// How many are wanted.
        wanted: u16,
        /// How many there are.
        max: u16,
        /// How this driver is given more.
        hint: &'static str,
    },

    /// A queue was asked for after the port had started.
    #[error(
        "device \"{device}\" has started with the queues claimed by then, one more {direction} \
         queue is wanted: claim every queue before the first is started"
    )]
    ClaimedAfterStart {
        /// The device string.
        device: String,
        /// Which queue.
        direction: Direction,
    },

    /// A queue was dropped before the start, and one with a higher index was not.
    #[error(
        "device \"{device}\": {direction} queue {index} was claimed and dropped before the start, \
         so that nobody would poll it: claim the queues again"
    )]
    QueueNotHeld {
        /// The device string.
        device: String,
        /// Which queues.
        direction: Direction,
        /// The queue's index.
        index: u16,
    },

    /// A port is to stop while somebody may be polling it.
    #[error(
        "device \"{device}\" cannot stop while {rx_count} RX and {tx_count} TX queues of it are \
         held: drop them first"
    )]
    QueuesHeld {
        /// The device string.
        device: String,
        /// RX queues still held.
        rx_count: usize,
        /// TX queues still held.
        tx_count: usize,
    },

    /// One step of configuring or starting the device failed.
    #[error("device \"{device}\": {step} failed: {error} (DPDK said: {said}); {remedy}")]
    Configure {
        /// The device string.
        device: String,
        /// The step, with its values.
        step: String,
        /// DPDK's error code in words.
        error: String,
        /// What DPDK logged.
        said: String,
        /// What to do.
        remedy: String,
    },

    /// The device does not have what the configuration asks for.
    #[error(
        "device \"{device}\" cannot do {wanted}; it offers {found}: leave it out of the configuration"
    )]
    Unsupported {
        /// The device string.
        device: String,
        /// What is wanted.
        wanted: String,
        /// What there is.
        found: String,
    },

    /// A mempool that cannot be as asked for.
    #[error("mempool: {problem}")]
    MempoolConfig {
        /// What is wrong, and the remedy.
        problem: String,
    },

    /// No memory for a mempool.
    #[error(
        "no mempool of {mbuf_count} mbufs of {data_room_bytes} bytes: {error} (DPDK said: {said}); \
         ask for fewer, or give EAL more memory (-m, in MiB, or more hugepages)"
    )]
    MempoolCreate {
        /// How many mbufs were wanted.
        mbuf_count: u32,
        /// The size of each one's buffer, headroom included.
        data_room_bytes: u16,
        /// DPDK's error code in words.
        error: String,
        /// What DPDK logged.
        said: String,
    },

    /// A mempool that would run empty.
    #[error("a mempool of {found} mbufs is too small: {need}; ask for at least that many")]
    MempoolTooSmall {
        /// How many it has.
        found: u32,
        /// What is needed, term by term.
        need: MempoolNeed,
    },

    /// A mempool has no mbuf left.
    #[error("the mempool is empty: ask for a larger one, or hold fewer mbufs")]
    MempoolEmpty,

    /// Mbufs of a mempool are missing, or are there twice.
    #[error("mempool of device \"{device}\" is not whole: {report}")]
    MempoolNotWhole {
        /// The device string.
        device: String,
        /// What was found.
        report: MempoolReport,
    },

    /// A port that has stopped, or is not there, was asked something.
    #[error("device \"{device}\": {what} cannot be read: {error}")]
    Read {
        /// The device string.
        device: String,
        /// What was to be read.
        what: &'static str,
        /// Why not.
        error: String,
    },
}

/// A queue's direction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// From the device.
    Rx,
    /// To the device.
    Tx,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rx => "RX",
            Self::Tx => "TX",
        })
    }
}

/// DPDK's error code of the calling thread's last failed call.
pub(crate) fn errno() -> c_int {
    // SAFETY: 1. Reads a thread-local variable.
    unsafe { sys::sh_errno() }
}

/// An error code in words; DPDK returns some negated.
pub(crate) fn errno_text(code: c_int) -> String {
    let code = code.abs();
    // SAFETY: 1. rte_errno.h: any number is taken; the text lives until the thread's next call.
    let text = unsafe { sys::rte_strerror(code) };
    if text.is_null() {
        return format!("error {code}");
    }
    // SAFETY: 1. rte_errno.h: it is a C string, and is copied before anything else is called.
    let text = unsafe { CStr::from_ptr(text) };
    format!("{} (error {code})", text.to_string_lossy())
}
