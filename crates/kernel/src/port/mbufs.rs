//! Mbufs for packets from the kernel.

use super::{FRAME_COUNT, Supply};
use hotloop_dpdk::{Eal, HEADROOM_BYTES, Mbuf, Mempool, MempoolConfig, MempoolNeed};
use hotloop_packet::PortId;
use hotloop_stage::{BURST_CAPACITY, Error, Limits};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A mempool for packets from the kernel. It is made when the engine starts, once the number of
/// packets under way is known.
#[derive(Debug)]
pub struct Mbufs {
    eal: Eal,
    frame_bytes_max: u16,
    tx_descriptor_count: usize,
    contiguous: bool,
    ingress: Option<PortId>,
    mempool: OnceLock<Mempool>,
    /// Held while the pool is made, so that only one is.
    making: Mutex<()>,
}

impl Mbufs {
    /// Mbufs for frames of at most `frame_bytes_max` bytes. Up to `tx_descriptor_count` of them may
    /// stay in TX descriptors: those of all queues that such packets leave by. `contiguous` is set
    /// if one of these queues belongs to a device on a bus.
    #[must_use]
    pub const fn new(
        eal: Eal,
        frame_bytes_max: u16,
        tx_descriptor_count: usize,
        contiguous: bool,
    ) -> Self {
        Self {
            eal,
            frame_bytes_max,
            tx_descriptor_count,
            contiguous,
            ingress: None,
            mempool: OnceLock::new(),
            making: Mutex::new(()),
        }
    }

    /// Sets the number that stages see as the packets' port, as if that port had
    /// [received](hotloop_packet::PacketBuf::ingress) them. It must differ from the numbers of
    /// DPDK's ports.
    #[must_use]
    pub fn with_ingress(mut self, number: PortId) -> Self {
        self.ingress = Some(number);
        self
    }

    fn config(&self, limits: &Limits) -> MempoolConfig {
        let cache_count = BURST_CAPACITY as u32;
        let need = MempoolNeed {
            rx_descriptor_count: 0,
            tx_descriptor_count: self.tx_descriptor_count,
            in_flight_count: limits.in_flight_max + FRAME_COUNT,
            thread_count: limits.thread_count,
            cache_count,
        };
        // One less than a power of two wastes no memory.
        let mbuf_count = (need.mbuf_count() + 1).next_power_of_two() - 1;
        MempoolConfig {
            mbuf_count: u32::try_from(mbuf_count).unwrap_or(u32::MAX),
            data_room_bytes: self
                .frame_bytes_max
                .saturating_add(HEADROOM_BYTES)
                .max(2_048 + HEADROOM_BYTES),
            cache_count,
            contiguous: self.contiguous,
            ..MempoolConfig::default()
        }
    }
}

impl Supply for Mbufs {
    type Packet = Mbuf;

    fn start(&self, limits: &Limits) -> Result<(), Error> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mempool.get().is_none() {
            let mempool = Mempool::new(self.eal, &self.config(limits))?;
            self.mempool.get_or_init(|| mempool);
        }
        Ok(())
    }

    fn take(&self) -> Option<Mbuf> {
        let mut mbuf = self.mempool.get()?.alloc()?;
        if let Some(number) = self.ingress {
            mbuf.set_ingress(number);
        }
        Some(mbuf)
    }

    fn check(&self) -> Result<(), Error> {
        let Some(report) = self.mempool.get().map(Mempool::report) else { return Ok(()) };
        if report.is_whole() {
            return Ok(());
        }
        Err(Error::message(format!("the pool of packets from the kernel is not whole: {report}")))
    }
}
