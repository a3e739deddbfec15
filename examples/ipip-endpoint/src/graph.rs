//! The network function as a graph.

use crate::arrival::{Arrivals, Side};
use crate::endpoint::Endpoint;
use hotloop::engine::{Graph, outlets};
use hotloop::prelude::*;

/// Receives from the port and the TAP interface, in this order, and sends to them.
pub fn graph<S, Z, E>(
    receive: impl Fn(&Core) -> Result<[S; 2], E> + Sync,
    send: impl Fn(&Core) -> Result<[Z; 2], E> + Sync,
    endpoint: &Endpoint,
) -> impl Graph
where
    S: Source<Item: PacketBuf>,
    Z: Sink<Item = S::Item>,
    E: Into<hotloop::Error>,
{
    source(move |core| receive(core).map(|[wire, kernel]| Arrivals::new(wire, kernel)))
        .burst_stage(|_| endpoint.clone())
        .sink(move |core| {
            send(core).map(|[wire, kernel]| outlets([(Side::Wire, wire), (Side::Kernel, kernel)]))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Answers, Settings, Stations};
    use hotloop::packet::build::tcp;
    use hotloop::packet::ethernet::MacAddress;
    use hotloop::testing::MemoryPort;

    #[test]
    fn both_ways_run_at_once_and_the_ledger_adds_up() {
        let (wire, tap) = (MemoryPort::new("wire"), MemoryPort::new("tap"));
        let request = tcp().to("203.0.113.10:80").payload([7; 1400]);
        let answer = tcp().from("203.0.113.10:80").dont_fragment().payload(vec![7; 1460]).build();
        wire.feed(0, (0..500).map(|_| request.clone().tunnelled("192.0.2.1", "10.0.0.1").build()));
        wire.feed(0, (0..30).map(|_| request.clone().build()));
        tap.feed(0, (0..200).map(|_| request.clone().from("203.0.113.10:80").build()));
        tap.feed(0, (0..20).map(|_| answer.clone()));
        wire.end_input();
        tap.end_input();

        let settings = Settings {
            addresses: vec!["10.0.0.1".parse().unwrap()],
            balancers: vec!["192.0.2.1".parse().unwrap()],
            answers: Answers::Tunnelled {
                source: "10.0.0.1".parse().unwrap(),
                destination: "192.0.2.1".parse().unwrap(),
            },
            next_hop: Some(MacAddress::new([2; 6])),
            mtu_bytes: 1500,
        };
        let stations = Stations { wire: MacAddress::new([6; 6]), kernel: MacAddress::new([10; 6]) };
        let endpoint = Endpoint::new(settings, stations).unwrap();
        let nf = graph(
            |core| Ok::<_, hotloop::Error>([wire.rx_queue(core)?, tap.rx_queue(core)?]),
            |core| Ok::<_, hotloop::Error>([wire.tx_queue(core)?, tap.tx_queue(core)?]),
            &endpoint,
        );
        let plan = Engine::plan(nf, Deployment::run_to_completion(1)).unwrap();
        let report = plan
            .run(|control| {
                control.wait_until_finished();
            })
            .unwrap();

        assert_eq!((report.received, report.sent, report.created), (750, 720, 20));
        assert_eq!((report.dropped["not_ours"], report.dropped["too_big"]), (30, 20));
        assert_eq!(wire.take_sent(0).len(), 200);
        assert_eq!(tap.take_sent(0).len(), 520);
    }
}
