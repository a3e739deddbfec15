//! What a simulated network function finds around it.

use crate::simulator::Settings;
use crate::{
    Faults, FaultySink, FaultySource, Frame, MemoryPort, MemoryRx, MemoryTx, PacketPool, PortConfig,
};
use hotloop_stage::{Core, Error};

/// The port of a simulated run, with its faults.
#[derive(Debug)]
pub struct World {
    port: MemoryPort,
    faults: Faults,
    settings: Settings,
}

impl World {
    pub(super) fn new(settings: &Settings, fault_seed: u64) -> Self {
        let config = PortConfig {
            pool: settings.pool_count.map_or_else(PacketPool::unbounded, PacketPool::of),
            lossless: settings.lossless,
            tx_kept_count: settings.tx_kept_count,
            records_sent: true,
        };
        Self {
            port: MemoryPort::with_config("memory", config),
            faults: Faults::seeded(fault_seed, settings.rates),
            settings: settings.clone(),
        }
    }

    /// Claims this core's RX queue.
    ///
    /// # Errors
    /// When it is claimed already.
    pub fn rx_queue(&self, core: &Core) -> Result<FaultySource<MemoryRx>, Error> {
        Ok(self.faults.source(self.port.rx_queue(core)?))
    }

    /// Claims this core's TX queue.
    ///
    /// # Errors
    /// When it is claimed already.
    pub fn tx_queue(&self, core: &Core) -> Result<FaultySink<MemoryTx>, Error> {
        Ok(self.faults.sink(self.port.tx_queue(core)?))
    }

    /// The port's pool, for stages that make packets.
    #[must_use]
    pub fn pool(&self) -> &PacketPool {
        self.port.pool()
    }

    /// How the run is set up.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn feed(&self, queue_index: usize, frames: impl IntoIterator<Item = Frame>) {
        self.port.feed(queue_index, frames);
    }

    pub(super) fn end_input(&self) {
        self.port.end_input();
    }

    pub(super) fn waiting_count(&self) -> u64 {
        let queues = 0..self.settings.deployment.cores_in(0);
        queues.map(|queue_index| self.port.waiting_count(queue_index) as u64).sum()
    }

    pub(super) fn take_sent(&self) -> Vec<Vec<Frame>> {
        let deployment = self.settings.deployment;
        let queues = 0..deployment.cores_in(deployment.group_count() - 1);
        queues.map(|queue_index| self.port.take_sent(queue_index)).collect()
    }
}
