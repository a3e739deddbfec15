//! DPDK, safely: the environment, memory pools, packets, ports and queues.
//!
//! - [`Eal`]: a `Copy` proof that DPDK is initialised, which happens once in a process. With no
//!   arguments it needs no privilege, no hugepages and no device.
//! - [`Mempool`]: a pool of packets, sized by [`MempoolNeed`], never freed.
//! - [`Mbuf`]: a packet with one owner, which may write to it; [`SharedMbuf`]: a packet with
//!   several owners, which may not.
//! - [`Filter`]: a pcap-filter expression, for captures.
//! - [`Port`]: a device, opened by its device string or PCI address; [`RxQueue`] and [`TxQueue`], each
//!   claimed once, are a [`Source`](hotloop_stage::Source) and a [`Sink`](hotloop_stage::Sink).
//!
//! # Guarantees
//!
//! No safe code causes undefined behaviour, in whatever order and on whatever threads values are
//! dropped:
//!
//! - A queue is polled by one thread at a time: it is neither `Sync` nor `Clone`.
//! - A port stops only once all its queues have been dropped, or have noticed that it will be
//!   reopened and wait for that, so that nobody polls it.
//! - An mbuf is freed once, by its owner; it may outlive its port and every handle of its pool.
//! - The lengths of a received packet agree with its segments and their buffers, whatever a file, the
//!   kernel or a peer wrote.
//! - Calls that configure devices take one lock; the packet path takes none.
//! - Nothing unwinds into C, and EAL never ends the process by itself.
//! - A driver is called only if 256 KiB of the thread's stack are left: its frames may be larger
//!   than a guard page, and DPDK has no stack probes. Otherwise calls return [`Error::Stack`];
//!   calls on queues panic, and lose no packet.
//!
//! # Example
//!
//! ```
//! use hotloop_dpdk::{Eal, Port};
//! use hotloop_packet::PacketBuf;
//! use hotloop_stage::{Burst, Core, Limits, Sink, Source};
//!
//! let port = Port::open(Eal::embedded()?, "net_ring0")?;
//! let core = Core::new(0, 1);
//! let (mut rx, mut tx) = (port.rx_queue(&core)?, port.tx_queue(&core)?);
//! let limits = Limits { in_flight_max: 64, thread_count: 1, is_pipeline: false };
//! (rx.start(&limits)?, tx.start(&limits)?);
//!
//! let mut packet = port.mempool().and_then(|pool| pool.alloc()).expect("a fresh pool");
//! packet.append(60)?.fill(7);
//! let mut burst = Burst::new();
//! burst.push(packet);
//! assert_eq!(tx.send(&mut burst), 1);
//! assert_eq!(rx.poll(&mut burst), 1);
//! assert_eq!(burst.as_slice()[0].data(), [7; 60]);
//! # Ok::<(), hotloop_stage::Error>(())
//! ```
//!
//! # Limits
//!
//! - A thread on another stack than the one from the system, as with coroutines, is refused as if
//!   it had no room. If the last owner of a port is dropped without room on the stack, its device
//!   stays open.
//! - At most 128 threads can be registered with EAL ([`lcore`]), and a process has one EAL.
//! - Only virtual devices with reviewed drivers are opened: net_null, net_ring, net_pcap,
//!   net_af_packet, net_af_xdp, net_tap, net_memif. Drivers that use other ports are refused.
//! - A net_memif port trusts the process at its other end, which can crash this one; so opening the
//!   port is unsafe.
//! - Secondary processes, telemetry and service cores are refused.
//! - `FAST_FREE` is never used, since a queue takes mbufs of any pool.
//!
//! # Unsafe code
//!
//! A hundred blocks, most of them a single call into DPDK, with the words of the guide or header
//! that allow it. They depend on nine invariants. A premise names the type or field that states its
//! invariant, and how the invariant is established and kept is documented there.
//!
//! | invariant | kept by | relied on in |
//! |---|---|---|
//! | An [`Eal`] proves that DPDK is initialised, once and for good | `eal`: made after the call returned, never cleaned up | `eal`, `threads`, `timestamp`, `lcore`, `lcore_id`, `log`, `errno`, `raw` |
//! | An [`Mbuf`] is a pointer to a valid chain of segments, and its only owner; a [`SharedMbuf`] points to a read-only one, and is included in its count | `from_raw` and its callers; `rx` copies packets that a driver hands out twice, and frees packets with lengths that don't agree | `mbuf`, `free`, `lengths`, `buf`, `segment`, `shared`, `raw`, `rx`, `tx` |
//! | A pool lives as long as the process, its objects are mbufs, and any thread may use it | `raw`: every pool has the same kind of ring, with slots for all its mbufs, and no pool is freed once it was handed out | `raw`, `report`, `shared`, `start` |
//! | A device's arguments are those that were checked | `device`: DPDK gets a string rebuilt from the parsed parts, and finds the same parts, each with a value; `values`: those that drivers don't check; `arguments`: EAL sees no other devices | `plug`, `start`; `kvargs`, for tests, has DPDK read them |
//! | A port exists while its state is locked and reports that; it is configured, started, stopped and closed under the single control lock, and stopped when no queue is held or inside its gate | `inner`, which counts the queues held; `reopen`; `gate`, which counts the queues inside | `inner`, `plug`, `start`, `stats`, `counters`, `reopen` |
//! | A queue inside its port's gate belongs to a running port, and is polled by one thread at a time | `gate`; `inner` hands it out once; it is polled through `&mut`; unclaimed queues are polled through the port's first queue | `rx`, `tx`, `spare` |
//! | A driver is called with room on the stack for its frames | `stack`: `rx` and `tx` check it in each call on a queue; the control lock's proof, and functions that read a port, include the check | `rx`, `tx`, `spare`, `plug`, `start`, `inner`, `stats` |
//! | A [`Filter`]'s program is made by one thread, with a stack that suffices, and freed once | the shim, which copies libpcap's result | `bpf`, `compile` |
//! | A descriptor that this crate asks the kernel about is open | `sockets`, which duplicates it, and `interface`, which opens it | `sockets`, `interface` |

mod bpf;
mod device;
mod eal;
mod errno;
mod error;
pub mod lcore;
mod lcore_id;
mod lock;
mod log;
mod mbuf;
mod mbuf_count;
mod mempool;
mod port;
mod stack;
mod timestamp;

pub use bpf::Filter;
#[cfg(feature = "fuzzing")]
pub use device::check_device_string;
pub use eal::{EMBEDDED_ARGUMENTS, Eal};
pub use error::{Direction, Error};
pub use mbuf::{HEADROOM_BYTES, Mbuf, SharedMbuf};
pub use mbuf_count::{MempoolNeed, MempoolReport};
pub use mempool::{Mempool, MempoolConfig, MempoolLevel, MempoolMemory, mempool_levels, mempools};
pub use port::{
    Capabilities, Link, Port, PortConfig, PortStats, RSS_KEY_SYMMETRIC, RssConfig, RssFields,
    RxQueue, TxQueue,
};
