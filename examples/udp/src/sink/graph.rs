//! The network function as a graph.

use crate::inspect::Findings;
use crate::sink::delivery::{Counts, Delivery};
use crate::sink::filter::{Datagram, ToPorts};
use crate::sink::ports::Ports;
use crate::sink::sockets::Sockets;
use hotloop::engine::{Graph, Shard};
use hotloop::packet::udp;
use hotloop::prelude::*;
use std::convert::Infallible;
use std::sync::Arc;

/// Odd, with equal numbers of ones and zeros (2^64 over the golden ratio): each bit of a flow
/// affects the upper half of a product.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Receives from the source that `receive` makes on each core, and counts the datagrams to `ports`.
pub fn graph<S, E>(
    receive: impl Fn(&Core) -> Result<S, E> + Sync,
    ports: &Ports,
    counts: &Arc<Counts>,
    findings: &Arc<Findings>,
) -> impl Graph
where
    S: Source<Item: PacketBuf>,
    E: Into<hotloop::Error>,
{
    source(receive)
        .stage(move |_| ToPorts::new(ports.clone()))
        .sink(move |core| Ok::<_, Infallible>(Delivery::new(core, counts, findings)))
}

/// [`graph`] that hands each flow to a worker of its own: the receiving cores only select the
/// worker.
pub fn sharded<S, E>(
    receive: impl Fn(&Core) -> Result<S, E> + Sync,
    ports: &Ports,
    counts: &Arc<Counts>,
    findings: &Arc<Findings>,
) -> impl Graph
where
    S: Source<Item: PacketBuf>,
    E: Into<hotloop::Error>,
{
    source(receive).stage(move |_| ToPorts::new(ports.clone())).shard_by(shard).sink(move |core| {
        counts.set_queue(core, core.index() as u16);
        Ok::<_, Infallible>(Delivery::new(core, counts, findings))
    })
}

/// The shard of a datagram's flow: computed from its ports, and the bytes before them, which are
/// the addresses of IPv4 and half of the destination of IPv6.
#[inline]
fn shard<P: PacketBuf>(datagram: &Datagram<P>) -> Shard {
    let [offset, _] = datagram.tag().map(usize::from);
    let flow =
        offset.checked_sub(2 * udp::HEADER_BYTES).and_then(|at| datagram.packet.data().get(at..));
    let Some((addresses, rest)) = flow.and_then(<[u8]>::split_first_chunk::<8>) else {
        return Shard::Hash(0);
    };
    let Some(ports) = rest.first_chunk::<4>() else { return Shard::Hash(0) };
    let ports = u64::from(u32::from_ne_bytes(*ports));
    let mixed = (u64::from_ne_bytes(*addresses) ^ ports << 32 ^ ports).wrapping_mul(MULTIPLIER);
    Shard::Hash((mixed >> 32) as u32)
}

/// Receives from sockets, which the kernel has bound to ports, and counts the datagrams. `waits` is
/// whether a core sleeps while there are no datagrams.
pub fn of_sockets(
    sockets: &Arc<Sockets>,
    waits: bool,
    counts: &Arc<Counts>,
    findings: &Arc<Findings>,
) -> impl Graph {
    let receive = move |core: &Core| {
        counts.set_queue(core, core.index() as u16);
        Ok::<_, Infallible>(sockets.receiver(core, waits))
    };
    source(receive).sink(move |core| Ok::<_, Infallible>(Delivery::new(core, counts, findings)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::Questions;
    use crate::rate::Passed;
    use crate::stamp::Stamp;
    use hotloop::packet::build::tcp;
    use hotloop::testing::MemoryPort;

    #[test]
    fn a_flow_has_one_worker_and_flows_are_spread() {
        let port = MemoryPort::new("wire");
        let from =
            |flow: u16| hotloop::packet::build::udp().from(format!("192.0.2.9:{}", 1000 + flow));
        let frame = |flow| {
            from(flow)
                .to("192.0.2.1:4321")
                .payload(Stamp { flow: flow.into(), number: 0, sent_ns: 0 }.bytes())
                .build()
        };
        for queue in 0..2 {
            port.feed(queue, (0..400).map(frame));
        }
        port.end_input();
        let (ports, counts) = ("4321".parse().unwrap(), Arc::new(Counts::new(2)));
        let questions = Questions { verified_flows: Some(400), latency: false };
        let findings = Arc::new(Findings::new(questions));
        let nf = sharded(|core| port.rx_queue(core), &ports, &counts, &findings);
        let plan = Engine::plan(nf, Deployment::pipeline([2, 2])).unwrap();
        let report = plan.run(|control| _ = control.wait_until_finished()).unwrap();
        assert_eq!((report.received, report.sent), (800, 800));
        // Both datagrams of each flow have number 0, so one worker must have seen both.
        assert_eq!(findings.found().verified.unwrap().duplicated, 400);
        let of_workers: Vec<_> = counts.queues().iter().map(|(_, passed)| passed.packets).collect();
        assert!(of_workers.iter().all(|count| (200..600).contains(count)), "{of_workers:?}");
    }

    #[test]
    fn two_queues_are_counted_apart_and_the_ledger_adds_up() {
        let port = MemoryPort::new("wire");
        let to_us = |bytes: usize| udp().to("192.0.2.1:9000").payload(vec![1; bytes]).build();
        port.feed(0, (0..100).map(|_| to_us(32)));
        port.feed(1, (0..50).map(|_| to_us(10)));
        port.feed(1, (0..7).map(|_| tcp().to("192.0.2.1:9000").build()));
        port.end_input();

        let (ports, counts) = ("9000".parse().unwrap(), Arc::new(Counts::new(2)));
        let findings = Arc::default();
        let receive = |core: &Core| {
            // The queues of a device may be claimed in any order.
            counts.set_queue(core, 1 - core.index() as u16);
            port.rx_queue(core)
        };
        let plan = Engine::plan(
            graph(receive, &ports, &counts, &findings),
            Deployment::run_to_completion(2),
        )
        .unwrap();
        let report = plan
            .run(|control| {
                control.wait_until_finished();
            })
            .unwrap();

        assert_eq!((report.received, report.sent), (157, 150));
        assert_eq!(report.dropped["not_udp"], 7);
        assert_eq!(report.devices.sent, Some(150));
        let (first, second) = (
            Passed { packets: 50, payload_bytes: 500 },
            Passed { packets: 100, payload_bytes: 3200 },
        );
        assert_eq!(counts.queues(), [(0, first), (1, second)]);
        assert_eq!(counts.passed(), Passed { packets: 150, payload_bytes: 3700 });
    }
}
