//! A port with memory as its wire.

use crate::port_queues::{MemoryRx, MemoryTx};
use crate::port_state::{PortConfig, PortState, lock, wire};
use crate::{Frame, PacketPool};
use hotloop_packet::PortId;
use hotloop_stage::{Core, Device, Error};
use std::fmt;
use std::sync::{Arc, Mutex};

/// A port in memory: a test feeds frames to its RX queues and takes the frames that its TX queues
/// sent.
///
/// Queues are numbered by the index of the core that claims them. A clone is another handle of the
/// same port; it can be used while other threads poll the queues.
///
/// ```
/// use hotloop_stage::{Burst, Core, Sink, Source};
/// use hotloop_testing::{Frame, MemoryPort};
///
/// let port = MemoryPort::new("lan");
/// let core = Core::new(0, 1);
/// let (mut rx, mut tx) = (port.rx_queue(&core)?, port.tx_queue(&core)?);
/// port.feed(0, [Frame::new([1, 2, 3])]);
///
/// let mut burst = Burst::new();
/// assert_eq!(rx.poll(&mut burst), 1);
/// assert_eq!(tx.send(&mut burst), 1);
/// assert_eq!(port.take_sent(0), [Frame::new([1, 2, 3])]);
/// # Ok::<(), hotloop_stage::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryPort(Arc<PortState>);

impl MemoryPort {
    /// A port of this name with the default configuration. Names tell ports apart in reports.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self::with_config(name, PortConfig::default())
    }

    /// A port with this name and configuration.
    #[must_use]
    pub fn with_config(name: impl Into<String>, config: PortConfig) -> Self {
        let (rx, tx) = (Mutex::default(), Mutex::default());
        Self(Arc::new(PortState { name: name.into(), config, rx, tx }))
    }

    /// The port's id, if its configuration has one.
    #[must_use]
    pub fn id(&self) -> Option<PortId> {
        self.0.config.id
    }

    /// The pool of its RX queues, for stages that make packets of their own.
    #[must_use]
    pub fn pool(&self) -> &PacketPool {
        &self.0.config.pool
    }

    /// Claims the RX queue of this core.
    ///
    /// # Errors
    /// If the queue is already claimed.
    pub fn rx_queue(&self, core: &Core) -> Result<MemoryRx, Error> {
        let index = core.index();
        let mut queues = lock(&self.0.rx);
        let queue = queues.entry(index).or_default();
        if std::mem::replace(&mut queue.claimed, true) {
            let name = &self.0.name;
            let message = format!("RX queue {index} of port {name} is claimed already");
            return Err(Error::message(message));
        }
        Ok(MemoryRx { port: Arc::clone(&self.0), wire: Arc::clone(&queue.wire) })
    }

    /// Claims a TX queue for this core: the one with the core's index. If that is already claimed,
    /// as by an exit of the graph, the first free one in steps of the number of cores.
    ///
    /// # Errors
    /// Never; the signature is that of a DPDK port.
    pub fn tx_queue(&self, core: &Core) -> Result<MemoryTx, Error> {
        let mut queues = lock(&self.0.tx);
        let mut index = core.index();
        while queues.get(&index).is_some_and(|queue| queue.claimed) {
            index += core.count();
        }
        let queue = queues.entry(index).or_default();
        queue.claimed = true;
        lock(&queue.wire).kept.reserve(self.0.config.tx_kept_count + 1);
        Ok(MemoryTx { port: Arc::clone(&self.0), wire: Arc::clone(&queue.wire) })
    }

    /// Appends frames to the ones waiting at an RX queue.
    pub fn feed<F: Into<Frame>>(&self, queue_index: usize, frames: impl IntoIterator<Item = F>) {
        lock(&wire(&self.0.rx, queue_index)).waiting.extend(frames.into_iter().map(Into::into));
    }

    /// Generates frames for an RX queue once the fed ones are gone: `generate` is called with the
    /// frame's number from 0 and an empty frame to fill, and returns whether there was one. The
    /// first `false` ends the input.
    ///
    /// The frame's memory is reused, so that generating need not allocate.
    pub fn generate(
        &self,
        queue_index: usize,
        generate: impl FnMut(u64, &mut Frame) -> bool + Send + 'static,
    ) {
        let wire = wire(&self.0.rx, queue_index);
        let mut input = lock(&wire);
        input.generate = Some(Box::new(generate));
        input.generated_count = 0;
    }

    /// Ends the input: each RX queue is finished once it is empty.
    pub fn end_input(&self) {
        for queue in lock(&self.0.rx).values() {
            lock(&queue.wire).ended = true;
        }
    }

    /// Number of frames waiting at an RX queue, without generated ones.
    #[must_use]
    pub fn waiting_count(&self, queue_index: usize) -> usize {
        lock(&wire(&self.0.rx, queue_index)).waiting_count()
    }

    /// Takes the frames that a TX queue sent since the last call, in order.
    #[must_use]
    pub fn take_sent(&self, queue_index: usize) -> Vec<Frame> {
        std::mem::take(&mut lock(&wire(&self.0.tx, queue_index)).frames)
    }

    /// Takes the frames that all TX queues sent since the last call, queue by queue.
    #[must_use]
    pub fn take_all_sent(&self) -> Vec<Frame> {
        lock(&self.0.tx)
            .values()
            .flat_map(|queue| std::mem::take(&mut lock(&queue.wire).frames))
            .collect()
    }

    /// The indexes of the RX queues that were fed or claimed, in order.
    pub(crate) fn rx_queue_indexes(&self) -> Vec<usize> {
        lock(&self.0.rx).keys().copied().collect()
    }

    /// The number of TX queues, up to the last one claimed.
    pub(crate) fn tx_queue_count(&self) -> usize {
        lock(&self.0.tx).keys().last().map_or(0, |last| last + 1)
    }

    /// The port as the engine's device.
    #[must_use]
    pub fn device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.0) as Arc<dyn Device>
    }
}

impl fmt::Debug for MemoryPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPort")
            .field("name", &self.0.name)
            .field("config", &self.0.config)
            .field("counters", &self.0.counters())
            .finish()
    }
}
