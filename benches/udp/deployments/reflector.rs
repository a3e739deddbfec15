//! Receive, look up, send: a network function that returns datagrams to their senders, as three
//! threads over RAW sockets, and as a hotloop graph in three deployments.

use super::raw;
use hotloop::arena::Arena;
use hotloop::dpdk::{Eal, Mbuf, Port};
use hotloop::engine::{Chain, Deployment, Graph, source};
use hotloop::flow::{Config, Hint, Table};
use hotloop::packet::ethernet;
use hotloop::packet::flow_key::FlowKeyV4;
use hotloop::packet::ip::protocol;
use hotloop::prelude::*;
use hotloop_benches::engines::on_cpus;
use std::io::{Read, stdin};
use std::net::Ipv4Addr;

/// The name under which this program is the network function.
pub const NAME: &str = "udp-reflector";

/// Its deployments: three threads over RAW sockets, each doing a part; threads that each do
/// everything; cores of the engine that each do everything; and pipelines of two and three.
pub const RAW: &str = "raw";
pub const RAW_WHOLE: &str = "raw-whole";
pub const WHOLE: &str = "whole";
pub const PIPELINE_2: &str = "pipeline-2";
pub const PIPELINE_3: &str = "pipeline-3";

/// Number of flows, and their idle timeout.
const FLOW_COUNT: usize = 4_096;
const IDLE_NS: u64 = 60_000_000_000;

/// Runs until standard input ends, and answers each input line with the number of packets sent so
/// far. The arguments are the deployment; the receiving and the sending device; and the CPUs of the
/// threads, if they should be pinned.
///
/// # Errors
/// The reason why the program can't run.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let [way, from, to, cpus @ ..] = arguments else { return Err("say which way".to_owned()) };
    let cpus: Vec<usize> = cpus.iter().filter_map(|cpu| cpu.parse().ok()).collect();
    match way.as_str() {
        RAW => raw::run(&cpus),
        RAW_WHOLE => raw::run_whole(&cpus),
        _ => of_graph(way, [from, to], &cpus).map_err(|error| error.to_string()),
    }
}

/// Waits until standard input ends.
pub fn wait_for_end() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn of_graph(way: &str, [from, to]: [&str; 2], cpus: &[usize]) -> hotloop::Result<()> {
    let eal = Eal::embedded()?;
    let from_port = Port::open(eal, from)?;
    let to_port = if from == to { from_port.clone() } else { Port::open(eal, to)? };
    let received = source(|core| from_port.rx_queue(core));
    let sent = |core: &Core| to_port.tx_queue(core);
    let look_up = |_: &Core| LookUp::new();
    match way {
        WHOLE => {
            let graph = received.try_stage(look_up).sink(sent);
            serve(graph, Deployment::run_to_completion(cpus.len()), cpus)
        }
        PIPELINE_2 => {
            let graph = received.handoff().try_stage(look_up).sink(sent);
            serve(graph, Deployment::pipeline([1, 1]), cpus)
        }
        PIPELINE_3 => {
            let graph = received.handoff().try_stage(look_up).handoff().sink(sent);
            serve(graph, Deployment::pipeline([1, 1, 1]), cpus)
        }
        _ => Err(hotloop::Error::message(format!("{way}: no such way"))),
    }
}

fn serve(graph: impl Graph, deployment: Deployment, cpus: &[usize]) -> hotloop::Result<()> {
    on_cpus(graph, deployment, cpus)?.run(|control| {
        for _ in stdin().lines().map_while(Result::ok) {
            println!("{}", control.snapshot().sent);
        }
    })?;
    Ok(())
}

/// The flows seen so far.
pub struct Flows(Table<FlowKeyV4, u64>);

impl Flows {
    /// An empty table.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn new() -> hotloop::Result<Self> {
        Ok(Self(Table::new(Arena::on(None)?, Config::new(FLOW_COUNT, IDLE_NS))?))
    }

    /// Looks up the flow of an IPv4 packet, and swaps its addresses and ports, which leaves
    /// checksums right. Returns whether the packet has ports.
    pub fn turn_back(&mut self, packet: &mut [u8], now: Instant) -> bool {
        let Some(headers) = headers_to_ports(packet) else { return false };
        let address = |at: usize| {
            Ipv4Addr::new(headers[at], headers[at + 1], headers[at + 2], headers[at + 3])
        };
        let port = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
        let key = FlowKeyV4::new(address(12), address(16), port(20), port(22), headers[9]);
        if self.0.find(&key, Hint::NONE, now).is_none()
            && self.0.insert(key, 0, now, &mut |_, _| ()).is_err()
        {
            return false;
        }
        swap_ends(headers);
        true
    }
}

/// The header of IPv4 without options, and the ports of TCP or UDP after it; `None` if a packet has
/// no such header.
fn headers_to_ports(ip: &mut [u8]) -> Option<&mut [u8; 24]> {
    let is_known = |protocol| [protocol::TCP, protocol::UDP].contains(&protocol);
    let headers = ip.first_chunk_mut()?;
    (headers[0] == 0x45 && is_known(headers[9])).then_some(headers)
}

/// Swaps addresses and ports, which leaves checksums right.
fn swap_ends(headers: &mut [u8; 24]) {
    let (first, second) = headers[12..20].split_at_mut(4);
    first.swap_with_slice(second);
    let (first, second) = headers[20..24].split_at_mut(2);
    first.swap_with_slice(second);
}

drop_reasons! {
    /// Why a packet is not sent back.
    pub enum ReflectorDrop {
        /// The packet is neither UDP nor TCP over IPv4 without options, or there is no room for its
        /// flow.
        Other = "other",
    }
}

/// The stage.
struct LookUp(Flows);

impl LookUp {
    fn new() -> hotloop::Result<Self> {
        Flows::new().map(Self)
    }
}

impl Stage<Mbuf> for LookUp {
    type Out = Mbuf;
    type Drop = ReflectorDrop;

    #[inline]
    fn packet(&mut self, cx: &mut Cx<'_, ReflectorDrop>, mut packet: Mbuf) -> Verdict<Mbuf> {
        let ip = packet.data_mut().get_mut(ethernet::HEADER_BYTES..).unwrap_or_default();
        if !self.0.turn_back(ip, cx.now()) {
            return cx.drop(packet, ReflectorDrop::Other);
        }
        ethernet::swap_addresses(&mut packet);
        Ok(packet)
    }
}
