//! The pool for datagrams.

use crate::source::make::Supply;
use hotloop::dpdk::{Mempool, MempoolConfig, MempoolNeed, PortConfig};
use hotloop::prelude::*;
use hotloop::stage::{Device, DeviceCounters};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A pool for all cores. It is made when the engine starts, because the number of packets in flight
/// is known then; at the end the ledger checks whether it is whole.
#[derive(Debug)]
pub struct Pool {
    eal: Eal,
    port: Port,
    port_config: PortConfig,
    queue_count: usize,
    mempool: OnceLock<Mempool>,
    /// Held while the pool is made, so that it is made only once.
    making: Mutex<()>,
}

impl Pool {
    /// A pool for packets sent by `queue_count` queues of `port`, which was opened with
    /// `port_config`.
    #[must_use]
    pub const fn new(eal: Eal, port: Port, port_config: PortConfig, queue_count: usize) -> Self {
        Self {
            eal,
            port,
            port_config,
            queue_count,
            mempool: OnceLock::new(),
            making: Mutex::new(()),
        }
    }

    /// The pool's configuration.
    fn config(&self, limits: &Limits) -> MempoolConfig {
        let port_config = &self.port_config;
        let cache_count = MempoolConfig::cache_count_for(limits.is_pipeline);
        let cache_count = port_config.cache_count.unwrap_or(cache_count);
        let need = MempoolNeed {
            rx_descriptor_count: 0,
            tx_descriptor_count: self.queue_count * usize::from(port_config.tx_descriptor_count),
            in_flight_count: limits.in_flight_max,
            thread_count: limits.thread_count,
            cache_count,
        };
        // One less than a power of two wastes no memory.
        let mbuf_count = need.mbuf_count().max(port_config.mbuf_count_min as usize);
        let mbuf_count = (mbuf_count + 1).next_power_of_two() - 1;
        MempoolConfig {
            mbuf_count: u32::try_from(mbuf_count).unwrap_or(u32::MAX),
            cache_count,
            node: self.port.capabilities().node,
            contiguous: is_on_bus(&self.port),
            ..MempoolConfig::default()
        }
    }
}

/// Whether the device accesses memory by itself: its name is then an address on the PCI bus.
pub(crate) fn is_on_bus(port: &Port) -> bool {
    port.name().contains(':')
}

impl Device for Pool {
    fn name(&self) -> String {
        "blanks".to_owned()
    }

    /// Nothing is received from the pool, and its packets count as created.
    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }

    fn check_pools(&self) -> hotloop::Result<()> {
        let Some(report) = self.mempool.get().map(Mempool::report) else { return Ok(()) };
        if report.is_whole() {
            return Ok(());
        }
        Err(hotloop::Error::message(format!("the pool of datagrams is not whole: {report}")))
    }
}

impl Supply for Pool {
    type Packet = Mbuf;

    fn start(&self, limits: &Limits) -> hotloop::Result<()> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mempool.get().is_none() {
            let mempool = Mempool::new(self.eal, &self.config(limits))?;
            self.mempool.get_or_init(|| mempool);
        }
        Ok(())
    }

    #[inline]
    fn take(&self, burst: &mut Burst<Mbuf>, count: usize) -> bool {
        self.mempool.get().is_some_and(|mempool| mempool.alloc_burst(burst, count))
    }
}
