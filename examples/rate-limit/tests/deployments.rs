//! The whole graph, simulated: cores in any order, any losses, and both deployments.

use hotloop::packet::ipv4::Ipv4View;
use hotloop::prelude::*;
use hotloop::stage::TokenRate;
use hotloop::testing::simulator::{Scenario, Simulated, World, simulate_seeds};
use hotloop::testing::{Frame, Rng};
use rate_limit::{Limits, limited};
use std::collections::HashMap;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// No bucket gets a token while a run lasts.
const LIMITS: Limits = Limits { rate: TokenRate::new(1, DAY, 3), sources_max: 100 };

/// Twenty sources that send more than they may.
struct Flood;

impl Scenario for Flood {
    fn port_count(&self) -> usize {
        2
    }

    fn is_fed(&self, port: usize) -> bool {
        port == 0
    }

    fn frame(&self, _: usize, _: usize, number: u64, _: &mut Rng) -> Frame {
        udp().from(format!("10.0.0.{}:1", number % 20)).build().into()
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        let received = source(|core: &Core| world.port(0).rx_queue(core));
        limited(received, LIMITS).sink(|core: &Core| world.port(1).tx_queue(core))
    }

    /// No source passes more than its bucket holds, whichever cores received its packets.
    fn check(&self, run: &Simulated) -> Result<(), String> {
        let mut counts = HashMap::new();
        for frame in run.sent[1].iter().flatten() {
            let Some(ip) = Ipv4View::of_frame(&frame.bytes) else { continue };
            *counts.entry(ip.source()).or_insert(0) += 1;
        }
        match counts.into_iter().find(|(_, count)| *count > LIMITS.rate.burst()) {
            Some((source, count)) => Err(format!("{count} packets of {source}")),
            None => Ok(()),
        }
    }
}

#[test]
fn no_source_passes_more_than_it_may_whatever_the_order_of_the_cores() {
    let totals = simulate_seeds(0..1_000, &Flood).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(totals.crossed > 0 && totals.sent > 0 && totals.sent < totals.received, "{totals:?}");
}
