//! The environment of a simulated network function.

use crate::simulator::Settings;
use crate::{
    Faults, FaultySink, FaultySource, MemoryPort, MemoryRx, MemoryTx, PacketPool, PortConfig, Rng,
};
use hotloop_packet::PortId;
use hotloop_stage::{Core, Error};

/// The ports of a simulated run.
#[derive(Debug)]
pub struct World {
    ports: Vec<SimulatedPort>,
    settings: Settings,
}

impl World {
    pub(super) fn new(settings: &Settings, port_count: usize, rng: &mut Rng) -> Self {
        let port = |index| SimulatedPort::new(index, port_count, settings, rng);
        Self { ports: (0..port_count).map(port).collect(), settings: settings.clone() }
    }

    /// The port at this index, from 0.
    ///
    /// # Panics
    /// If there is no such port: [`Scenario::port_count`](super::Scenario::port_count).
    #[must_use]
    pub fn port(&self, index: usize) -> &SimulatedPort {
        &self.ports[index]
    }

    /// The run's settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn memory(&self) -> impl Iterator<Item = &MemoryPort> {
        self.ports.iter().map(|port| &port.memory)
    }

    /// Number of frames waiting at RX queues.
    pub(super) fn waiting_count(&self) -> u64 {
        let waiting = |port: &MemoryPort| {
            port.rx_queue_indexes()
                .into_iter()
                .map(|index| port.waiting_count(index))
                .sum::<usize>()
        };
        self.memory().map(waiting).sum::<usize>() as u64
    }
}

/// A port of a simulated run, with its faults. Its queues are numbered by the index of the core that
/// claims them.
#[derive(Debug)]
pub struct SimulatedPort {
    id: PortId,
    memory: MemoryPort,
    faults: Faults,
}

impl SimulatedPort {
    fn new(index: usize, port_count: usize, settings: &Settings, rng: &mut Rng) -> Self {
        let id = PortId::new(u16::try_from(index).expect("no more ports than ids"));
        let pool = settings.pool_count.map(|count| PacketPool::of(count * port_count));
        let config = PortConfig {
            id: Some(id),
            pool: pool.unwrap_or_else(PacketPool::unbounded),
            lossless: settings.lossless,
            tx_kept_count: settings.tx_kept_count,
            records_sent: true,
        };
        let memory = MemoryPort::with_config(format!("memory{index}"), config);
        Self { id, memory, faults: Faults::seeded(rng.next_u64(), settings.rates) }
    }

    /// The port's id: its index. Its received packets have this as their
    /// [`ingress`](hotloop_packet::PacketBuf::ingress).
    #[must_use]
    pub const fn id(&self) -> PortId {
        self.id
    }

    /// Claims this core's RX queue.
    ///
    /// # Errors
    /// If the queue is already claimed.
    pub fn rx_queue(&self, core: &Core) -> Result<FaultySource<MemoryRx>, Error> {
        Ok(self.faults.source(self.memory.rx_queue(core)?))
    }

    /// Claims a TX queue for this core, as [`MemoryPort::tx_queue`].
    ///
    /// # Errors
    /// Never.
    pub fn tx_queue(&self, core: &Core) -> Result<FaultySink<MemoryTx>, Error> {
        Ok(self.faults.sink(self.memory.tx_queue(core)?))
    }

    /// The port's pool, for stages that create packets.
    #[must_use]
    pub fn pool(&self) -> &PacketPool {
        self.memory.pool()
    }
}
