//! Errors between this program and DPDK.

use crate::mbuf_count::{MempoolNeed, MempoolReport};
use crate::stack;
use std::fmt;

/// Why DPDK or this crate refused a call. Each message has the request, the finding and the remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// EAL runs already, and starts only once in a process.
    #[error(
        "EAL was to start with \"{wanted}\", but runs already with \"{running}\": it starts once in \
         a process; use Eal::current()"
    )]
    AlreadyInitialised {
        /// The requested arguments.
        wanted: String,
        /// The arguments that EAL runs with.
        running: String,
    },

    /// An argument for EAL that cannot be passed on.
    #[error("EAL argument \"{argument}\": {problem}")]
    EalArgument {
        /// The argument.
        argument: String,
        /// The problem and its remedy.
        problem: String,
    },

    /// EAL did not start.
    #[error("EAL does not start with \"{arguments}\": {error} (EAL said: {said}); {remedy}")]
    EalInit {
        /// The arguments passed to EAL.
        arguments: String,
        /// EAL's error code as text.
        error: String,
        /// EAL's log output.
        said: String,
        /// The remedy.
        remedy: String,
    },

    /// A thread cannot be registered with EAL.
    #[error("this thread cannot be registered with EAL: {found}")]
    NoLcore {
        /// The reason, and the remedy.
        found: String,
    },

    /// The calling thread's stack has too little room left for DPDK's drivers, or is not the one
    /// that the system gave the thread.
    #[error("{}", stack::message(found))]
    Stack {
        /// Room left on the thread's stack, or why that is unknown.
        found: String,
    },

    /// An expression that is not a valid filter.
    #[error("filter \"{expression}\": {problem}; pcap-filter(7) has the syntax")]
    Filter {
        /// The expression or its beginning.
        expression: String,
        /// The problem.
        problem: String,
    },

    /// A device string that names no device that this crate opens.
    #[error("device \"{device}\": {problem}; {remedy}")]
    DeviceString {
        /// The device string.
        device: String,
        /// The problem.
        problem: String,
        /// The remedy.
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

    /// The device's driver does not take the device.
    #[error("device \"{device}\" does not come up: {error} (DPDK said: {said}); {remedy}")]
    Probe {
        /// The device string.
        device: String,
        /// DPDK's error code as text.
        error: String,
        /// DPDK's log output.
        said: String,
        /// The remedy.
        remedy: String,
    },

    /// More queues than the device has.
    #[error(
        "device \"{device}\" has {max} {direction} {noun}, {wanted} are wanted: use fewer cores, or \
         give the device more queues{hint}{}",
        direction.way_out(),
        noun = if *max == 1 { "queue" } else { "queues" }
    )]
    TooManyQueues {
        /// The device string.
        device: String,
        /// Which queues.
        direction: Direction,
        /// Number of queues requested.
        wanted: u16,
        /// Number of queues available.
        max: u16,
        /// How to give this driver more queues.
        hint: &'static str,
    },

    /// A queue was requested after the port had started.
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

    /// A port can't stop while its queues may be polled.
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
        /// DPDK's error code as text.
        error: String,
        /// DPDK's log output.
        said: String,
        /// The remedy.
        remedy: String,
    },

    /// The device lacks a feature in the configuration.
    #[error(
        "device \"{device}\" cannot do {wanted}; it offers {found}: leave it out of the configuration"
    )]
    Unsupported {
        /// The device string.
        device: String,
        /// The requested feature.
        wanted: String,
        /// The available features.
        found: String,
    },

    /// A mempool configuration that is impossible.
    #[error("mempool: {problem}")]
    MempoolConfig {
        /// The problem and its remedy.
        problem: String,
    },

    /// No memory for a mempool.
    #[error(
        "no mempool of {mbuf_count} mbufs of {data_room_bytes} bytes: {error} (DPDK said: {said}); \
         ask for fewer, or give EAL more memory (-m, in MiB, or more hugepages)"
    )]
    MempoolCreate {
        /// Number of mbufs requested.
        mbuf_count: u32,
        /// The size of each mbuf's buffer, headroom included.
        data_room_bytes: u16,
        /// DPDK's error code as text.
        error: String,
        /// DPDK's log output.
        said: String,
    },

    /// A mempool that would run empty.
    #[error("a mempool of {found} mbufs is too small: {need}; ask for at least that many")]
    MempoolTooSmall {
        /// Number of mbufs in the pool.
        found: u32,
        /// The required number, term by term.
        need: MempoolNeed,
    },

    /// A mempool has no mbuf left.
    #[error("the mempool is empty: ask for a larger one, or hold fewer mbufs")]
    MempoolEmpty,

    /// Mbufs of a mempool are missing or duplicated.
    #[error("mempool of device \"{device}\" is not whole: {report}")]
    MempoolNotWhole {
        /// The device string.
        device: String,
        /// The result of the check.
        report: MempoolReport,
    },

    /// A port that has stopped, or no longer exists, can't be read.
    #[error("device \"{device}\": {what} cannot be read: {error}")]
    Read {
        /// The device string.
        device: String,
        /// The value to be read.
        what: &'static str,
        /// The reason.
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

impl Direction {
    /// The way to use fewer queues than a pipeline's last group has cores.
    const fn way_out(self) -> &'static str {
        match self {
            Self::Rx => "",
            Self::Tx => {
                "; or, in a pipeline, let one core send: .handoff() before .sink(..), and \
                 pipeline([.., 1])"
            }
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rx => "RX",
            Self::Tx => "TX",
        })
    }
}

impl From<stack::NoRoom> for Error {
    fn from(stack::NoRoom { found }: stack::NoRoom) -> Self {
        Self::Stack { found }
    }
}
