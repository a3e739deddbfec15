//! The ports for a replay: one for the files of each core.

use super::split::{Split, nameless};
use crate::failure::Failure;
use hotloop::dpdk::{
    Eal, Error, HEADROOM_BYTES, Mempool, MempoolConfig, MempoolNeed, Port, PortConfig,
};
use hotloop::engine::Deployment;
use hotloop::packet::ethernet::MacAddress;
use hotloop::stage::{BURST_CAPACITY, Core};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Minimum size of buffers, in bytes, headroom included: DPDK's default.
const DATA_ROOM_BYTES_MIN: usize = 2048 + HEADROOM_BYTES as usize;

/// If frames are longer than this, in bytes, rings are kept short, since each packet in them takes
/// a buffer of that size.
const FRAME_BYTES_LONG: usize = 10_000;

/// Total capacity of the rings to one worker, in packets.
const WORKER_RINGS_CAPACITY: usize = 1024;

/// Minimum capacity of each ring: a burst.
const RING_CAPACITY_MIN: usize = BURST_CAPACITY;

/// Descriptors of a queue. net_pcap's descriptors hold no packets.
const DESCRIPTOR_COUNT: u16 = 64;

/// Maximum number of bursts of packets that a core has in its stages and sinks, not counting those
/// on their way to other cores. A pool that is too small for them would be refused at the start.
const CORE_BURSTS_MAX: usize = 16;

/// Capacity of each ring between two cores, if the longest frame has `longest_bytes`. A source that
/// waits for room needs no long rings.
pub fn ring_capacity(deployment: Deployment, longest_bytes: usize) -> usize {
    let rings_per_worker = deployment.cores_in(0).next_power_of_two();
    let capacity = (WORKER_RINGS_CAPACITY / rings_per_worker).max(RING_CAPACITY_MIN);
    if longest_bytes > FRAME_BYTES_LONG { RING_CAPACITY_MIN } else { capacity }
}

/// A port for each index of a core: it reads the packets for the receiver of that index, and writes
/// the packets from the worker of that index.
#[derive(Debug)]
pub struct Devices {
    ports: Vec<Port>,
    /// The captures that the ports write, by worker.
    sent: Vec<File>,
}

impl Devices {
    /// Opens the ports, which share one pool. Their device strings are short, however many there
    /// are: each names two files by the numbers of their descriptors.
    pub fn open(split: &Split, deployment: Deployment) -> Result<Self, Failure> {
        let sent = (0..deployment.cores_in(1)).map(|_| nameless());
        let sent = sent.collect::<Result<Vec<_>, _>>()?;
        let ports = open_ports(split, &sent, deployment);
        Ok(Self { ports: ports.map_err(|error| Failure::Run(error.to_string()))?, sent })
    }

    /// The port of a core.
    pub fn port(&self, core: &Core) -> &Port {
        &self.ports[core.index()]
    }

    /// The source address of all packets sent.
    pub fn mac(&self) -> MacAddress {
        self.ports[0].mac()
    }

    /// Closes the ports; returns the captures that they wrote, by worker.
    pub fn close(self) -> Vec<File> {
        self.sent
    }
}

fn open_ports(split: &Split, sent: &[File], deployment: Deployment) -> Result<Vec<Port>, Error> {
    let eal = Eal::embedded_or_current()?;
    let config = PortConfig {
        rx_descriptor_count: DESCRIPTOR_COUNT,
        tx_descriptor_count: DESCRIPTOR_COUNT,
        mempool: Some(Mempool::new(eal, &mempool_config(deployment, split.longest_bytes))?),
        ..PortConfig::default()
    };
    let argument = |key: &str, file: Option<&File>| {
        file.map_or(String::new(), |file| format!(",{key}=/proc/self/fd/{}", file.as_raw_fd()))
    };
    let open = |index| {
        let rx = argument("rx_pcap", split.files.get(index));
        let tx = argument("tx_pcap", sent.get(index));
        Port::open_with(eal, &format!("net_pcap_replay{index}{rx}{tx}"), config.clone())
    };
    (0..split.files.len().max(sent.len())).map(open).collect()
}

/// One pool for all ports, since each would need as large a pool as all of them together.
fn mempool_config(deployment: Deployment, longest_bytes: usize) -> MempoolConfig {
    let (receivers, workers) = (deployment.cores_in(0), deployment.cores_in(1));
    let rings = receivers * workers;
    let bursts = rings + deployment.core_count() * CORE_BURSTS_MAX;
    let cache_count = MempoolConfig::cache_count_for(deployment.group_count() > 1);
    let need = MempoolNeed {
        rx_descriptor_count: receivers * usize::from(DESCRIPTOR_COUNT),
        tx_descriptor_count: workers * usize::from(DESCRIPTOR_COUNT),
        in_flight_count: rings * ring_capacity(deployment, longest_bytes) + bursts * BURST_CAPACITY,
        thread_count: deployment.core_count(),
        cache_count,
    };
    let mbuf_count = u32::try_from(need.mbuf_count()).unwrap_or(u32::MAX);
    let data_room_bytes = DATA_ROOM_BYTES_MIN.max(longest_bytes + usize::from(HEADROOM_BYTES));
    MempoolConfig {
        mbuf_count,
        data_room_bytes: data_room_bytes as u16,
        cache_count,
        ..MempoolConfig::default()
    }
}
