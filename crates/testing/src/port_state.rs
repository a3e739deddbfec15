//! The state of a memory port, which its queues share.

use crate::{Frame, PacketPool, PooledPacket};
use hotloop_packet::PortId;
use hotloop_stage::{Device, DeviceCounters, Error};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The behaviour of a [`MemoryPort`](crate::MemoryPort).
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// The port's id, which its received packets have as their
    /// [`ingress`](hotloop_packet::PacketBuf::ingress).
    pub id: Option<PortId>,
    /// The pool for packets of its RX queues. A frame that arrives when none is left is lost as
    /// `rx_nombuf`, or waits if the port is lossless.
    pub pool: PacketPool,
    /// Whether frames can wait, as in a file.
    pub lossless: bool,
    /// Number of sent packets that each TX queue keeps until the port is stopped, as descriptors
    /// do.
    pub tx_kept_count: usize,
    /// Whether sent frames are copied for [`MemoryPort::take_sent`](crate::MemoryPort::take_sent). Without that, sending
    /// allocates nothing.
    pub records_sent: bool,
}

impl Default for PortConfig {
    /// No id, an unbounded pool, loss instead of waiting, 32 packets kept, all frames recorded.
    fn default() -> Self {
        Self {
            id: None,
            pool: PacketPool::unbounded(),
            lossless: false,
            tx_kept_count: 32,
            records_sent: true,
        }
    }
}

pub(crate) struct PortState {
    pub(crate) name: String,
    pub(crate) config: PortConfig,
    pub(crate) rx: Mutex<BTreeMap<usize, Queue<RxWire>>>,
    pub(crate) tx: Mutex<BTreeMap<usize, Queue<TxWire>>>,
}

pub(crate) struct Queue<W> {
    pub(crate) wire: Arc<W>,
    pub(crate) claimed: bool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queue's wire; a queue exists once it is fed or claimed.
pub(crate) fn wire<W: Default>(
    queues: &Mutex<BTreeMap<usize, Queue<W>>>,
    queue_index: usize,
) -> Arc<W> {
    let mut queues = lock(queues);
    Arc::clone(&queues.entry(queue_index).or_default().wire)
}

impl<W: Default> Default for Queue<W> {
    fn default() -> Self {
        Self { wire: Arc::default(), claimed: false }
    }
}

impl Device for PortState {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn counters(&self) -> DeviceCounters {
        let mut counters = DeviceCounters::default();
        for queue in lock(&self.rx).values() {
            counters.received += queue.wire.received_count();
            counters.rx_nombuf += queue.wire.nombuf_count();
        }
        for queue in lock(&self.tx).values() {
            counters.sent += queue.wire.sent_count();
        }
        counters
    }

    fn stop(&self) -> Result<(), Error> {
        for queue in lock(&self.tx).values() {
            queue.wire.free_kept();
        }
        Ok(())
    }

    fn check_pools(&self) -> Result<(), Error> {
        let whole = self.config.pool.check_whole();
        whole.map_err(|error| Error::message(format!("pool of port {}: {error}", self.name)))
    }
}

/// Makes the frame of a number; returns false if there is none.
type Generate = Box<dyn FnMut(u64, &mut Frame) -> bool + Send>;

/// The wire of an RX queue.
#[derive(Default)]
pub(crate) struct RxWire {
    input: Mutex<Input>,
    pub(crate) received: AtomicU64,
    pub(crate) nombuf: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Input {
    /// The next frame, if `loaded`.
    pub(crate) next: Frame,
    pub(crate) loaded: bool,
    pub(crate) waiting: VecDeque<Frame>,
    generate: Option<Generate>,
    generated_count: u64,
    pub(crate) ended: bool,
}

impl Input {
    /// Whether there is a frame in `next`.
    pub(crate) fn load(&mut self) -> bool {
        if self.loaded {
            return true;
        }
        if let Some(frame) = self.waiting.pop_front() {
            (self.next, self.loaded) = (frame, true);
        } else if let Some(generate) = &mut self.generate {
            self.next.bytes.clear();
            self.next.timestamp_ns = None;
            self.loaded = generate(self.generated_count, &mut self.next);
            if self.loaded {
                self.generated_count += 1;
            } else {
                (self.generate, self.ended) = (None, true);
            }
        }
        self.loaded
    }
}

impl RxWire {
    pub(crate) fn input(&self) -> MutexGuard<'_, Input> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn feed(&self, frames: &mut dyn Iterator<Item = Frame>) {
        self.input().waiting.extend(frames);
    }

    pub(crate) fn generate(&self, generate: Generate) {
        let mut input = self.input();
        (input.generate, input.generated_count) = (Some(generate), 0);
    }

    pub(crate) fn end(&self) {
        self.input().ended = true;
    }

    pub(crate) fn waiting_count(&self) -> usize {
        let input = self.input();
        input.waiting.len() + usize::from(input.loaded)
    }

    pub(crate) fn received_count(&self) -> u64 {
        self.received.load(Relaxed)
    }

    pub(crate) fn nombuf_count(&self) -> u64 {
        self.nombuf.load(Relaxed)
    }
}

/// The wire of a TX queue.
#[derive(Default)]
pub(crate) struct TxWire {
    output: Mutex<Output>,
    pub(crate) sent: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Output {
    pub(crate) frames: Vec<Frame>,
    pub(crate) kept: VecDeque<PooledPacket>,
}

impl TxWire {
    pub(crate) fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_sent(&self) -> Vec<Frame> {
        std::mem::take(&mut self.output().frames)
    }

    pub(crate) fn sent_count(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    pub(crate) fn free_kept(&self) {
        self.output().kept.clear();
    }
}
