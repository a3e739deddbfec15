//! The cost of a capture that has ended, and of one with a filter that matches no packet, relative
//! to a core that never had any. Measured on a UDP sink, which captures packets as they come, and
//! on the balancer of `ipip-lb` among known connections, which captures packets as they come and,
//! with few connections, also as they leave.

use crate::sink::Receiver;
use hotloop::dpdk::{Eal, Filter};
use hotloop::engine::{Capture, CaptureConfig, Points, Taps};
use hotloop_benches::bed::{Bed, Setup};
use hotloop_measure::contest::{Contest, run_all};
use hotloop_measure::instrument::Instrument;
use hotloop_measure::table::Table;
use std::sync::Arc;
use std::time::Duration;

/// The share of the rate that is left after a capture has ended, within the precision of rows.
const OFF_AIM: f64 = 0.97;

/// A filter that matches nothing takes at most 1.15 times the time without it.
const FILTER_AIM: f64 = 1.0 / 1.15;

/// No packet here matches: datagrams are not TCP, and the balancer's service has another port.
const EXPRESSION: &str = "tcp port 443 and host 198.51.100.7";

const NEVER: &str = "never captured";
const OVER: &str = "a capture that is over";
const FILTERED: &str = "a filter that matches nothing";

/// Packets before a capture begins and before it ends.
const SOME: u64 = 1_000;

/// Numbers of connections that fit the cache, and that are typical for a balancer.
const FLOW_COUNTS: [u32; 2] = [1_000, 1_000_000];
const SERVICE_COUNT: u32 = 10;

/// One core, whose traffic is played by a closure.
struct PlayedCore<'a> {
    taps: Taps,
    play: Box<dyn FnMut(u64) -> Duration + 'a>,
}

/// Rows of both programs. The UDP sinks use net_ring devices with numbers from `first_device` on.
pub fn bench(
    eal: Eal,
    first_device: usize,
    instrument: &mut Instrument,
    table: &mut Table,
) -> Result<(), String> {
    let sink = |index| {
        let mut sink =
            Receiver::new(eal, first_device + index).map_err(|error| error.to_string())?;
        let (taps, play) = (sink.taps(), Box::new(move |count| sink.play(count)));
        Ok::<_, String>(PlayedCore { taps, play })
    };
    let balancer = |flow_count| {
        let mut bed = Bed::balancer(&Setup::hits(SERVICE_COUNT, flow_count))?;
        let (taps, play) = (bed.taps(), Box::new(move |count| bed.play(count)));
        Ok::<_, String>(PlayedCore { taps, play })
    };
    let balancers = |count| Ok::<_, String>([balancer(count)?, balancer(count)?, balancer(count)?]);
    let sinks = [sink(0)?, sink(1)?, sink(2)?];
    let (few, many) = (balancers(FLOW_COUNTS[0])?, balancers(FLOW_COUNTS[1])?);
    let (received, both) = (&Points::RECEIVE, &Points { send: true, ..Points::RECEIVE });
    let mut captures = Vec::new();
    let contests = vec![
        contest("engine/captured UDP sink", eal, sinks, received, &mut captures)?,
        contest("engine/captured balancer", eal, few, both, &mut captures)?,
        contest("engine/balancer captured at receive", eal, many, received, &mut captures)?,
    ];
    let names = ["UDP sink", "balancer, 1K flows", "balancer at receive, 1M flows"];
    let outcomes = run_all(contests, instrument);
    for (name, outcome) in names.iter().zip(&outcomes) {
        let Some(outcome) = outcome else { continue };
        for (side, aim) in [(OVER, OFF_AIM), (FILTERED, FILTER_AIM)] {
            let row = format!("{name}, {side}");
            table.rows.push(outcome.row(&row, "ns a packet", (side, NEVER), aim));
        }
    }
    Ok(())
}

/// Three instances of the same: without any capture, with a capture that has ended, and with one
/// that sees packets but keeps none, and lasts as long as `captures`.
fn contest<'a>(
    name: &str,
    eal: Eal,
    [never, mut over, mut filtered]: [PlayedCore<'a>; 3],
    points: &Points,
    captures: &mut Vec<Capture>,
) -> Result<Contest<'a>, String> {
    let filter = Filter::compile(eal, EXPRESSION).map_err(|error| error.to_string())?;
    let mut config = CaptureConfig { points: points.clone(), ..CaptureConfig::default() };
    let begin = |taps: &Taps, config: &_| taps.capture(config).map_err(|error| error.to_string());
    let mut ended = begin(&over.taps, &config)?;
    (over.play)(SOME);
    ended.stop();
    (over.play)(SOME);
    assert!(ended.totals().seen >= SOME && ended.totals().filtered == 0, "all of them are seen");
    drop(ended);
    config.filter = Some(Arc::new(filter));
    let capture = begin(&filtered.taps, &config)?;
    (filtered.play)(SOME);
    let totals = capture.totals();
    assert!(totals.seen >= SOME && totals.filtered == totals.seen, "none is wanted: {totals:?}");
    captures.push(capture);
    let contest = Contest::new(name).side(NEVER, never.play).side(OVER, over.play);
    Ok(contest.side(FILTERED, filtered.play))
}
