//! Carries packets between cores and the kernel, through a TAP interface.

mod budget;
mod either;
mod ends;
mod frame_ring;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod gate;
#[cfg(feature = "dpdk")]
mod mbufs;
mod punt;
mod punting;
mod thread;

use super::tap::{Tap, TapConfig, TapError};
use ends::SourceCounts;
use frame_ring::{Emptying, Filling, frame_rings};
use hotloop_packet::PacketBuf;
use hotloop_packet::ethernet::MacAddress;
use hotloop_stage::{Core, Counter, Device, DeviceCounters, Error, Limits, LinkState};
use punting::{Each, SinkCounts};
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thread::Carrier;

pub use either::PortOrKernel;
pub use ends::{KernelSink, KernelSource};
pub use frame_ring::FRAME_COUNT;
#[cfg(feature = "fuzzing")]
pub use fuzzing::check_punted;
#[cfg(feature = "dpdk")]
pub use mbufs::Mbufs;
pub use punt::{PuntLimit, PuntLimits, PuntPeer, PuntReason};

/// The longest wait for the thread of a stopping port to write punted packets.
const DRAIN_WAIT: Duration = Duration::from_secs(5);

/// Memory for packets from the kernel.
pub trait Supply: Send + Sync + 'static {
    /// The packet type.
    type Packet: PacketBuf;

    /// Called by each source of the port before it takes the first packet.
    ///
    /// # Errors
    /// The supply can't have packets; the engine does not run then.
    fn start(&self, limits: &Limits) -> Result<(), Error> {
        let _ = limits;
        Ok(())
    }

    /// Takes an empty packet, with room for a frame. `None` if the memory is used up.
    fn take(&self) -> Option<Self::Packet>;

    /// Checks, after the run, that every packet is back.
    ///
    /// # Errors
    /// Packets are missing.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Packets to and from the kernel: a TAP interface with a thread of its own. An engine's cores use
/// it as a source and as a sink.
///
/// - A packet that goes into a [`sink`](Self::sink) is sent: it arrives at the interface, as if
///   from a wire, within about a millisecond. Each core has a limit for each kind of packets
///   ([`PuntReason`]), with a share for each source, and separate limits for each [`PuntPeer`]. Up
///   to 256 frames may wait for the kernel; some of them are reserved for more important packets. A
///   packet is dropped if it is above a limit, finds no frame, or is too long for the interface.
///   The engine counts it as `tx_refused`, and [`counters`](Self::counters) by kind. If all 256
///   frames wait already, the engine drops the newest packet as `tx_full`.
/// - A packet that the kernel sends out of the interface is received from the
///   [`source`](Self::source) of core 0, in order. While the core takes nothing, packets wait in
///   the interface's own queue, of 1,000, and the kernel counts those that are lost there.
///
/// Cores only copy packets: they never wait for the kernel, make a system call, lock or allocate.
///
/// The interface goes away when this is dropped, unless another process has [a file](Self::share)
/// of it.
pub struct KernelPort<S: Supply> {
    state: Arc<PortState<S>>,
    /// The interface's file; closed with the thread's.
    file: OwnedFd,
    index: u32,
    mac: MacAddress,
    thread: Option<JoinHandle<()>>,
}

/// A count for each kind of packets, in the order of [`PuntReason`].
pub type EachReason = [(PuntReason, u64); PuntReason::ALL.len()];

/// Counters of a kernel port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelPortCounters {
    /// Packets from the kernel that cores received.
    pub received: u64,
    /// Packets from the kernel that were too long for a packet of the supply.
    pub received_too_long: u64,
    /// Packets of each kind that went to the kernel.
    pub punted: EachReason,
    /// Packets of each kind above a limit.
    pub limited: EachReason,
    /// Packets of each kind dropped because the empty frames were reserved for more important ones.
    pub queue_full: EachReason,
    /// BGP from the address of a [`PuntPeer`] with [`gtsm`](PuntPeer::gtsm), with a TTL other than
    /// 255.
    pub forwarded: EachReason,
    /// Packets for the kernel that were too long for the interface.
    pub punted_too_long: u64,
    /// Punted packets that the kernel refused: the interface was down, or gone.
    pub write_failed: u64,
}

/// State of the port that its ends share.
struct PortState<S> {
    name: String,
    mtu_bytes: u32,
    limits: PuntLimits,
    supply: S,
    is_source_claimed: AtomicBool,
    source_counts: Arc<SourceCounts>,
    /// Counters of every sink so far.
    sink_counts: Mutex<Vec<Arc<SinkCounts>>>,
    shared: Arc<Shared>,
}

/// State shared with the thread.
struct Shared {
    claims: Mutex<Claims>,
    has_claims: AtomicBool,
    is_stopping: AtomicBool,
    /// Whether the interface was deleted.
    is_gone: AtomicBool,
    /// Number of sinks with packets to write.
    sink_count: AtomicUsize,
    write_failed: Counter,
    /// Ends the thread's wait.
    wake: OwnedFd,
}

/// Rings that the thread has yet to take over.
#[derive(Default)]
struct Claims {
    sinks: Vec<Emptying>,
    source: Option<Filling>,
}

impl Shared {
    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self, claim: impl FnOnce(&mut Claims)) {
        claim(&mut self.claims());
        self.has_claims.store(true, Release);
        self.wake();
    }

    fn wake(&self) {
        // The counter is read whenever it is not 0, so a write always succeeds.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl<S: Supply> KernelPort<S> {
    /// Makes the interface in the calling thread's network namespace, and starts the thread, which
    /// keeps no rights. `limits` are per core.
    ///
    /// # Errors
    /// As [`Tap::open`]; the kernel has no more threads or files.
    pub fn open(config: &TapConfig, limits: PuntLimits, supply: S) -> Result<Self, TapError> {
        Self::with(Tap::open(config)?, limits, supply)
    }

    /// As [`open`](Self::open), with an [interface](Tap::adopt) that another process has handed
    /// over.
    ///
    /// # Errors
    /// As [`Tap::adopt`]; the kernel has no more threads or files.
    pub fn adopt(
        config: &TapConfig,
        file: OwnedFd,
        limits: PuntLimits,
        supply: S,
    ) -> Result<Self, TapError> {
        Self::with(Tap::adopt(config, file)?, limits, supply)
    }

    fn with(tap: Tap, limits: PuntLimits, supply: S) -> Result<Self, TapError> {
        let (name, index, mac) = (tap.name().to_owned(), tap.index(), tap.mac());
        let setup = |what: &str| {
            let (name, what) = (name.clone(), what.to_owned());
            move |source| TapError::Setup { name, what, source }
        };
        let file = tap.share().map_err(setup("its file"))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(Shared {
            claims: Mutex::default(),
            has_claims: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            sink_count: AtomicUsize::new(0),
            write_failed: Counter::default(),
            wake: wake.map_err(|error| setup("its thread")(error.into()))?,
        });
        let state = PortState {
            name: name.clone(),
            mtu_bytes: tap.mtu_bytes(),
            limits,
            supply,
            is_source_claimed: AtomicBool::new(false),
            source_counts: Arc::default(),
            sink_counts: Mutex::default(),
            shared: Arc::clone(&shared),
        };
        let carrier = Carrier { tap, shared, sinks: Vec::new(), source: None };
        let thread = std::thread::Builder::new().name("kernel".into()).spawn(|| carrier.run());
        let thread = thread.map_err(setup("its thread"))?;
        Ok(Self { state: Arc::new(state), file, index, mac, thread: Some(thread) })
    }

    /// Claims the source for a core. Core 0's yields packets; those of other cores yield nothing.
    ///
    /// # Errors
    /// Core 0's source is claimed already.
    pub fn source(&self, core: &Core) -> Result<KernelSource<S>, Error> {
        let (state, counts) = (Arc::clone(&self.state), Arc::clone(&self.state.source_counts));
        if core.index() > 0 {
            return Ok(KernelSource::new(state, None, counts));
        }
        if state.is_source_claimed.swap(true, Relaxed) {
            let name = &state.name;
            let message = format!("the packets from interface {name} are claimed already");
            return Err(Error::message(message));
        }
        let (filling, emptying) = frame_rings(state.mtu_bytes);
        state.shared.claim(|claims| claims.source = Some(filling));
        Ok(KernelSource::new(state, Some(emptying), counts))
    }

    /// Claims a sink for a core. A core may have several, as for an exit and for the end of a
    /// chain; each has limits of its own.
    ///
    /// # Errors
    /// Never fails: the result's type is that of DPDK's ports.
    pub fn sink(&self, _: &Core) -> Result<KernelSink<S>, Error> {
        let state = Arc::clone(&self.state);
        let counts = Arc::<SinkCounts>::default();
        lock(&state.sink_counts).push(Arc::clone(&counts));
        let (filling, emptying) = frame_rings(state.mtu_bytes);
        state.shared.sink_count.fetch_add(1, Relaxed);
        state.shared.claim(|claims| claims.sinks.push(emptying));
        Ok(KernelSink::new(state, filling, counts))
    }

    /// Returns a file of the interface, to hand over to another process, which
    /// [adopts](Self::adopt) it once this port is dropped. The interface stays until that file is
    /// closed as well.
    ///
    /// # Errors
    /// The process has no file left.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The interface's number in its namespace.
    #[must_use]
    pub const fn interface_index(&self) -> u32 {
        self.index
    }

    /// The interface's Ethernet address.
    #[must_use]
    pub const fn mac(&self) -> MacAddress {
        self.mac
    }

    /// The memory for packets from the kernel.
    #[must_use]
    pub fn supply(&self) -> &S {
        &self.state.supply
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> KernelPortCounters {
        self.state.counts()
    }
}

impl<S> PortState<S> {
    fn counts(&self) -> KernelPortCounters {
        let sinks = lock(&self.sink_counts);
        let sum = |of: &dyn Fn(&SinkCounts) -> &Counter| -> u64 {
            sinks.iter().map(|counts| of(counts).count()).sum()
        };
        let each = |of: fn(&SinkCounts) -> &Each| {
            PuntReason::ALL.map(|reason| (reason, sum(&|counts| &of(counts)[reason as usize])))
        };
        KernelPortCounters {
            received: self.source_counts.received.count(),
            received_too_long: self.source_counts.too_long.count(),
            punted: each(|counts| &counts.punted),
            limited: each(|counts| &counts.limited),
            queue_full: each(|counts| &counts.queue_full),
            forwarded: each(|counts| &counts.forwarded),
            punted_too_long: sum(&|counts| &counts.too_long),
            write_failed: self.shared.write_failed.count(),
        }
    }
}

impl<S: Supply> Device for PortState<S> {
    fn name(&self) -> String {
        format!("kernel {}", self.name)
    }

    fn counters(&self) -> DeviceCounters {
        let counts = self.counts();
        DeviceCounters {
            received: counts.received,
            sent: counts.punted.iter().map(|(_, count)| count).sum(),
            tx_failed: counts.write_failed,
            ..DeviceCounters::default()
        }
    }

    fn link_state(&self) -> Option<LinkState> {
        let is_gone = self.shared.is_gone.load(Relaxed);
        Some(if is_gone { LinkState::Gone } else { LinkState::Up })
    }

    /// Waits until the punted packets are written.
    fn stop(&self) -> Result<(), Error> {
        let deadline = Instant::now() + DRAIN_WAIT;
        while self.shared.sink_count.load(Acquire) > 0 {
            if Instant::now() > deadline {
                return Err(Error::message("its thread does not write what was punted"));
            }
            self.shared.wake();
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    fn check_pools(&self) -> Result<(), Error> {
        self.supply.check()
    }
}

impl<S: Supply> Drop for KernelPort<S> {
    fn drop(&mut self) {
        self.state.shared.is_stopping.store(true, Release);
        self.state.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<S: Supply> fmt::Debug for KernelPort<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelPort")
            .field("name", &self.state.name)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
