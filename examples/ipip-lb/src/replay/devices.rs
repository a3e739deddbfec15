//! The ports that a replay runs on: one for the files of each core.

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

/// Buffers are at least this large, in bytes, headroom included: the size that DPDK proposes.
const DATA_ROOM_BYTES_MIN: usize = 2048 + HEADROOM_BYTES as usize;

/// Where frames are longer than this, in bytes, rings are kept short, since each packet in them takes
/// a buffer of that size.
const FRAME_BYTES_LONG: usize = 10_000;

/// How many packets the rings to one worker hold together.
const WORKER_RINGS_CAPACITY: usize = 1024;

/// The least that one of them holds: a burst.
const RING_CAPACITY_MIN: usize = BURST_CAPACITY;

/// Descriptors of a queue. Those of net_pcap hold nothing.
const DESCRIPTOR_COUNT: u16 = 64;

/// How many bursts' worth of packets a core has in its stages and sinks at most, those on their way
/// to other cores aside. A pool that is too small for it would be refused at the start.
const CORE_BURSTS_MAX: usize = 16;

/// How many packets each ring between two cores holds, where the longest frame has `longest_bytes`. A
/// source that waits for room needs no long ones.
pub fn ring_capacity(deployment: Deployment, longest_bytes: usize) -> usize {
    let rings_per_worker = deployment.cores_in(0).next_power_of_two();
    let capacity = (WORKER_RINGS_CAPACITY / rings_per_worker).max(RING_CAPACITY_MIN);
    if longest_bytes > FRAME_BYTES_LONG { RING_CAPACITY_MIN } else { capacity }
}

/// A port for each index of a core: it reads what the receiver of that index is to receive, and
/// writes what the worker of that index sends.
#[derive(Debug)]
pub struct Devices {
    ports: Vec<Port>,
    /// What ports write, by worker.
    sent: Vec<File>,
}

impl Devices {
    /// Opens the ports, which share one pool. Their device strings are short however many there are:
    /// each names two files, by the numbers of their descriptors.
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

    /// The source address of all that is sent.
    pub fn mac(&self) -> MacAddress {
        self.ports[0].mac()
    }

    /// Closes the ports; returns what they wrote, by worker.
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

/// One pool for all ports, since each would need as many mbufs as all of them together.
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
