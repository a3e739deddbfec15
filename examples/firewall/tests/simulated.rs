//! The whole graph in both deployments, with faults of devices.

use crate::wall::{RULES, firewall, rules_of};
use firewall::firewall::filtered;
use firewall::packet::Side;
use hotloop::packet::build::{tcp, udp};
use hotloop::prelude::*;
use hotloop::testing::simulator::{Scenario, Settings, Simulated, World, simulate_seeds};
use hotloop::testing::{Frame, Rng};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Hosts of the inside ask, servers answer, and strangers try.
#[derive(Default)]
struct Traffic {
    /// The runs to completion, and the pipelines.
    runs: [AtomicUsize; 2],
}

fn key(frame: &Frame) -> Option<FlowKey> {
    FlowKey::of(&frame.bytes, frame.bytes.len(), Depth::Outermost)
}

/// The answer of a server to a query, in two fragments.
fn answer(frame: &Frame) -> Option<Vec<Frame>> {
    let key = key(frame).filter(|key| key.protocol() == 17)?;
    let from = SocketAddr::new(key.destination(), key.destination_port());
    let to = SocketAddr::new(key.source(), key.source_port());
    let answer = udp().from(from).to(to).identification(key.source_port()).payload([7; 2000]);
    Some(answer.build_fragments(1280).into_iter().map(Frame::new).collect())
}

impl Scenario for Traffic {
    fn settings(&self, rng: &mut Rng) -> Settings {
        let settings = Settings::drawn(rng);
        self.runs[usize::from(!settings.deployment.is_run_to_completion())].fetch_add(1, Relaxed);
        settings
    }

    fn port_count(&self) -> usize {
        2
    }

    fn frame(&self, port: usize, _queue: usize, number: u64, rng: &mut Rng) -> Frame {
        let (host, client) = (2 + rng.index(20), 2000 + number % 1000);
        let frame = match (port, rng.index(5)) {
            (0, 0) => tcp().from(format!("10.0.0.{host}:{client}")).to("192.0.2.1:80"),
            (0, _) => udp().from(format!("10.0.0.{host}:{client}")).to("192.0.2.53:53"),
            (_, 0) => tcp().from(format!("192.0.2.9:{client}")).to("10.0.0.5:22"),
            (_, 1) => tcp().from(format!("192.0.2.9:{client}")).to(format!("10.0.0.{host}:23")),
            (_, 2) => udp()
                .from("192.0.2.53:53")
                .to(format!("10.0.0.{host}:{client}"))
                .tunnelled("192.0.2.53", format!("10.0.0.{host}")),
            _ => udp().from("192.0.2.66:53").to(format!("10.0.0.{host}:{client}")),
        };
        Frame::new(frame.build())
    }

    fn peer(&self, port: usize) -> Option<impl FnMut(&Frame, &mut Rng) -> Vec<Frame>> {
        (port == 1).then_some(|frame: &Frame, _: &mut Rng| answer(frame).unwrap_or_default())
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        let (inside, outside) = (world.port(0), world.port(1));
        let (_, subscribers) = publish(Arc::new(rules_of(RULES)));
        let received = source(|core| {
            let queues = [inside.rx_queue(core)?, outside.rx_queue(core)?];
            Ok::<_, hotloop::Error>(sources(queues))
        });
        let make = move |core: &Core| Ok(firewall(core, 10_000, &subscribers));
        filtered(received, 7, make).sink(|core| {
            let [inside, outside] = [inside.tx_queue(core)?, outside.tx_queue(core)?];
            Ok::<_, hotloop::Error>(outlets([(Side::Inside, inside), (Side::Outside, outside)]))
        })
    }

    /// A packet that reached the inside answers one that left, or a rule allows it.
    fn check(&self, run: &Simulated) -> Result<(), String> {
        let [inside, outside] =
            [0, 1].map(|port| run.sent[port].iter().flatten().collect::<Vec<_>>());
        let asked: HashSet<FlowKey> =
            outside.into_iter().filter_map(key).map(FlowKey::reversed).collect();
        for frame in inside {
            let key = key(frame).ok_or("a frame without a key")?;
            let is_ssh = key.destination_port() == 22;
            let is_later = key.destination_port() == 0 && key.source().to_string() == "192.0.2.53";
            if !is_ssh && !is_later && !asked.contains(&key) {
                return Err(format!("{key} reached the inside"));
            }
        }
        Ok(())
    }
}

#[test]
fn only_answers_come_in_whatever_the_deployment() {
    let traffic = Traffic::default();
    let totals = simulate_seeds(0..400, &traffic).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(totals.crossed > 0 && totals.answered > 0 && totals.created > 0, "{totals:?}");
    let lost = totals.dropped["no_first_fragment"];
    assert!(lost * 12 < totals.answered, "fragments must meet: {lost} of {}", totals.answered);
    assert!(totals.dropped["no_rule"] > 0, "{totals:?}");
    assert!(traffic.runs.iter().all(|it| it.load(Relaxed) > 50), "{:?}", traffic.runs);
}
