//! The network function as a graph.

use crate::delivery::{Counts, Delivery};
use crate::filter::ToPorts;
use crate::ports::Ports;
use hotloop::engine::Graph;
use hotloop::prelude::*;
use std::convert::Infallible;
use std::sync::Arc;

/// Receives from what `receive` makes on each core, and counts the datagrams to `ports`.
pub fn graph<S, E>(
    receive: impl Fn(&Core) -> Result<S, E> + Sync,
    ports: &Ports,
    counts: &Arc<Counts>,
) -> impl Graph
where
    S: Source<Item: PacketBuf>,
    E: Into<hotloop::Error>,
{
    source(receive)
        .stage(move |_| ToPorts::new(ports.clone()))
        .sink(move |core| Ok::<_, Infallible>(Delivery::new(core, counts)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Passed;
    use hotloop::packet::build::tcp;
    use hotloop::testing::MemoryPort;

    #[test]
    fn two_queues_are_counted_apart_and_the_ledger_adds_up() {
        let port = MemoryPort::new("wire");
        let to_us = |bytes: usize| udp().to("192.0.2.1:9000").payload(vec![1; bytes]).build();
        port.feed(0, (0..100).map(|_| to_us(32)));
        port.feed(1, (0..50).map(|_| to_us(10)));
        port.feed(1, (0..7).map(|_| tcp().to("192.0.2.1:9000").build()));
        port.end_input();

        let (ports, counts) = ("9000".parse().unwrap(), Arc::new(Counts::new(2)));
        let receive = |core: &Core| {
            // The queues of a device may be claimed in any order.
            counts.set_queue(core, 1 - core.index() as u16);
            port.rx_queue(core)
        };
        let plan = Engine::plan(graph(receive, &ports, &counts), Deployment::run_to_completion(2))
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
