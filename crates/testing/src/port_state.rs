//! The state of a memory port, which its queues share.

use crate::{Frame, PacketPool, PooledPacket};
use hotloop_packet::PortId;
use hotloop_stage::{Device, DeviceCounters, Error};
use std::collections::{BTreeMap, VecDeque};
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
    pub(crate) rx: Queues<Input>,
    pub(crate) tx: Queues<Output>,
}

/// Queues by their index. A queue exists once it is fed or claimed.
pub(crate) type Queues<W> = Mutex<BTreeMap<usize, Queue<W>>>;

#[derive(Default)]
pub(crate) struct Queue<W> {
    pub(crate) wire: Arc<Mutex<W>>,
    pub(crate) claimed: bool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queue's wire.
pub(crate) fn wire<W: Default>(queues: &Queues<W>, queue_index: usize) -> Arc<Mutex<W>> {
    Arc::clone(&lock(queues).entry(queue_index).or_default().wire)
}

impl Device for PortState {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn counters(&self) -> DeviceCounters {
        let mut counters = DeviceCounters::default();
        for queue in lock(&self.rx).values() {
            let input = lock(&queue.wire);
            counters.received += input.received_count;
            counters.rx_nombuf += input.nombuf_count;
        }
        for queue in lock(&self.tx).values() {
            counters.sent += lock(&queue.wire).sent_count;
        }
        counters
    }

    fn stop(&self) -> Result<(), Error> {
        for queue in lock(&self.tx).values() {
            lock(&queue.wire).kept.clear();
        }
        Ok(())
    }

    fn check_pools(&self) -> Result<(), Error> {
        let whole = self.config.pool.check_whole();
        whole.map_err(|error| Error::message(format!("pool of port {}: {error}", self.name)))
    }
}

/// Makes the frame of a number; returns false if there is none.
type Generator = dyn FnMut(u64, &mut Frame) -> bool + Send;

/// The wire of an RX queue.
#[derive(Default)]
pub(crate) struct Input {
    /// The next frame, if `loaded`.
    pub(crate) next: Frame,
    pub(crate) loaded: bool,
    pub(crate) waiting: VecDeque<Frame>,
    pub(crate) generate: Option<Box<Generator>>,
    pub(crate) generated_count: u64,
    pub(crate) ended: bool,
    pub(crate) received_count: u64,
    pub(crate) nombuf_count: u64,
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

    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.len() + usize::from(self.loaded)
    }
}

/// The wire of a TX queue.
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) frames: Vec<Frame>,
    pub(crate) kept: VecDeque<PooledPacket>,
    pub(crate) sent_count: u64,
}
