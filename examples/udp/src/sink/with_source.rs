//! A sink with a source in the same process: one core sends into a ring in memory, another receives
//! from it.

use crate::arguments::Load;
use crate::inspect::Findings;
use crate::sink::delivery::{Counts, Delivery};
use crate::sink::filter::{Datagram, FilterDrop, ToPorts};
use crate::sink::ports::Ports;
use crate::source::datagrams::{Datagrams, Plan};
use crate::source::flows::Flows;
use crate::source::generator::Generator;
use crate::source::graph::Steering;
use crate::source::make::Frames;
use crate::source::pace::Pace;
use crate::source::patient::Patient;
use crate::source::pool::Pool;
use hotloop::dpdk::{self, RxQueue, TxQueue};
use hotloop::engine::Graph;
use hotloop::packet::ethernet::MacAddress;
use hotloop::prelude::*;
use hotloop::stage::Device;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The device: packets sent to its TX queue come out of its RX queue, without system calls.
pub const DEVICE: &str = "net_ring0";

/// One core receives, the other sends.
pub const CORE_COUNT: usize = 2;

/// The core that receives.
const RECEIVER: usize = 0;

/// The flows' first source port.
const SOURCE_PORT: u16 = 10_000;

/// The source's plan: datagrams to the first of `ports`.
#[must_use]
pub fn plan(load: &Load, ports: &Ports, mac: MacAddress) -> Plan {
    let to = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)), ports.first());
    let from = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));
    Plan {
        flows: Flows { from, first_port: SOURCE_PORT, to: vec![to], count: load.flow_count() },
        from_mac: mac,
        to_macs: vec![mac],
        payload_bytes: load.payload_bytes(),
    }
}

/// The inputs of both cores.
pub struct Loopback<'a> {
    /// The device.
    pub port: &'a Port,
    /// The plan of datagrams.
    pub plan: &'a Plan,
    /// Datagrams a second.
    pub rate: Option<u64>,
    /// The pool for datagrams to send.
    pub pool: &'a Arc<Pool>,
    /// Controls the sending.
    pub steering: &'a Steering,
    /// The ports to count.
    pub ports: &'a Ports,
    /// The counters.
    pub counts: &'a Arc<Counts>,
    /// The results of inspection.
    pub findings: &'a Arc<Findings>,
}

impl Loopback<'_> {
    /// The graph of both.
    pub fn graph(&self) -> impl Graph {
        source(|core| self.source(core))
            .stage(|core| self.filter(core))
            .sink(|core| self.sink(core))
    }

    fn source(&self, core: &Core) -> Result<FromEither, dpdk::Error> {
        if core.index() == RECEIVER {
            let queue = self.port.rx_queue(core)?;
            self.counts.set_queue(core, queue.index());
            return Ok(FromEither::Ring(queue));
        }
        let frames = Frames::new(Arc::clone(self.pool), Datagrams::new(self.plan, 0, 1));
        Ok(FromEither::Made(self.steering.generator(frames, Pace::new(self.rate, 0, 1))))
    }

    fn filter(&self, core: &Core) -> Filter {
        Filter((core.index() == RECEIVER).then(|| ToPorts::new(self.ports.clone())))
    }

    fn sink(&self, core: &Core) -> Result<ToEither, dpdk::Error> {
        if core.index() == RECEIVER {
            return Ok(ToEither::Delivered(Delivery::new(core, self.counts, self.findings)));
        }
        Ok(ToEither::Ring(self.steering.patient(self.port.tx_queue(core)?)))
    }
}

/// A core's source.
#[derive(Debug)]
enum FromEither {
    Ring(RxQueue),
    Made(Generator<Frames<Pool>>),
}

impl Source for FromEither {
    type Item = Mbuf;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<Mbuf>) -> usize {
        match self {
            Self::Ring(queue) => queue.poll(burst),
            Self::Made(generator) => generator.poll(burst),
        }
    }

    fn start(&mut self, limits: &Limits) -> hotloop::Result<()> {
        match self {
            Self::Ring(queue) => queue.start(limits),
            Self::Made(generator) => generator.start(limits),
        }
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        match self {
            Self::Ring(queue) => queue.devices(),
            Self::Made(generator) => generator.devices(),
        }
    }

    fn creates(&self) -> bool {
        matches!(self, Self::Made(_))
    }
}

/// Selects packets to be delivered; packets to be sent pass unchanged.
struct Filter(Option<ToPorts>);

impl Stage<Mbuf> for Filter {
    type Out = Datagram<Mbuf>;
    type Drop = FilterDrop;

    #[inline]
    fn packet(&mut self, cx: &mut Cx<'_, FilterDrop>, packet: Mbuf) -> Verdict<Datagram<Mbuf>> {
        match &mut self.0 {
            Some(ports) => ports.packet(cx, packet),
            None => Ok(Tagged::new(packet, [0, 0])),
        }
    }
}

/// A core's sink.
#[derive(Debug)]
enum ToEither {
    Ring(Patient<TxQueue>),
    Delivered(Delivery<Datagram<Mbuf>>),
}

impl Sink for ToEither {
    type Item = Datagram<Mbuf>;

    #[inline]
    fn send(&mut self, burst: &mut Burst<Datagram<Mbuf>>) -> usize {
        match self {
            Self::Ring(queue) => {
                let mut frames = Burst::new();
                burst.map_into(&mut frames, |datagram| Some(datagram.packet));
                let sent = queue.send(&mut frames);
                frames.map_into(burst, |packet| Some(Tagged::new(packet, [0, 0])));
                sent
            }
            Self::Delivered(delivery) => delivery.send(burst),
        }
    }

    fn refused_count(&self) -> u64 {
        match self {
            Self::Ring(queue) => queue.refused_count(),
            Self::Delivered(delivery) => delivery.refused_count(),
        }
    }

    fn maintain(&mut self) {
        match self {
            Self::Ring(queue) => queue.maintain(),
            Self::Delivered(delivery) => delivery.maintain(),
        }
    }

    fn start(&mut self, limits: &Limits) -> hotloop::Result<()> {
        match self {
            Self::Ring(queue) => queue.start(limits),
            Self::Delivered(delivery) => delivery.start(limits),
        }
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        match self {
            Self::Ring(queue) => queue.devices(),
            Self::Delivered(delivery) => delivery.devices(),
        }
    }
}
