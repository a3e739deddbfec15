//! Two cores, one that receives and one that balances, compared with one core that does both: whole
//! engines on threads of their own.

use crate::Bench;
use hotloop::engine::{Control, Engine, outlets};
use hotloop::stage::Error;
use hotloop_balancer::balance::Route;
use hotloop_balancer::counts::WorkerCounts;
use hotloop_benches::configuration::{BACKEND_COUNT, ONE_CORE, PIPELINE, configuration, egresses};
use hotloop_benches::engines::per_ns;
use hotloop_benches::traffic::{ACK, Dial, Loop, Writer};
use hotloop_measure::distance::{Distance, add_rows, rounds};
use hotloop_measure::figure::Figure;
use hotloop_measure::row::Row;
use ipip_lb::network_function::NetworkFunction;
use std::time::{Duration, Instant};

/// Numbers of connections, and the maximum number of rounds: many short ones, as in the engine's
/// pipelines, except if entering the connections takes seconds.
const SIZES: [(&str, u32, usize); 3] =
    [("1K", 1_000, 100), ("1M", 1_000_000, 100), ("8M", 8_000_000, 8)];

/// Number of rounds to keep.
const KEPT_COUNT: usize = 16;

/// The number of packet buffers, which are reused. It limits the packets in flight: the ring
/// between the cores could hold four times that. With 1K flows, the pipeline was 5 % slower with
/// 256 buffers, and 12 % slower with 16,384 buffers and a ring of that size.
const BUFFER_COUNT: usize = 1024;

/// Durations of the warm-up, with packets of known connections, and of the measurement.
const WARM_UP: Duration = Duration::from_millis(50);
const WINDOW: Duration = Duration::from_millis(60);

/// Time limit for entering the connections.
const ENTERING_MAX: Duration = Duration::from_secs(30);

/// Relative to one core: between near cores, and far ones.
const AIMS: [f64; 2] = [1.3, 0.9];

/// All sizes; in a quick run without the largest, and once.
pub fn bench(bench: &mut Bench) -> Result<(), String> {
    let size_count = if bench.quick { SIZES.len() - 1 } else { SIZES.len() };
    if core_affinity::get_core_ids().is_none_or(|cpus| cpus.len() < 2) {
        bench.table.unshown.push("pipeline 1 + 1: there is one CPU".to_owned());
        return Ok(());
    }
    for (size, flow_count, round_count) in &SIZES[..size_count] {
        eprintln!("pipeline, {size} flows");
        let round_count = if bench.quick { 1 } else { *round_count };
        let round = || Ok([mpps(PIPELINE, *flow_count)?, mpps(ONE_CORE, *flow_count)?]);
        let rounds = rounds(round_count, KEPT_COUNT, round)?;
        let name = |distance: Distance| {
            format!("pipeline 1 + 1, {} cores, hits, {size} flows", distance.name())
        };
        add_rows(&rounds, &mut bench.table, name, |rounds, name, distance| {
            let [pipeline, one] =
                [0, 1].map(|side| Figure::of_rounds(rounds.iter().map(|round| round[side])));
            let aim = AIMS[distance as usize];
            vec![Row::rate(name, "one core", "Mpps", (&pipeline, &one), aim)]
        });
    }
    Ok(())
}

/// Millions of packets a second, for `flow_count` connections in random order.
fn mpps(deployment: &str, flow_count: u32) -> Result<f64, String> {
    let config = configuration((10, BACKEND_COUNT), flow_count + flow_count / 16, deployment);
    let made = NetworkFunction::new(&config, egresses());
    let (function, handles) = made.map_err(|error| error.to_string())?;
    let packets = Loop::new(BUFFER_COUNT, Writer::new(10));
    let graph = function.graph(
        |core| packets.source(core),
        |core| Ok::<_, Error>(outlets([(Route(0), packets.sink(core)?)])),
    );
    let plan =
        Engine::plan(graph, config.engine.deployment()).map_err(|error| error.to_string())?;
    let mut measured = Err("nothing was measured".to_owned());
    let run = plan.run(|control| {
        measured = observe(control, &packets.dial(), &handles.counts[0], flow_count);
    });
    run.map_err(|error| error.to_string())?;
    measured
}

fn observe(
    control: &Control,
    dial: &Dial,
    counts: &WorkerCounts,
    flow_count: u32,
) -> Result<f64, String> {
    let start = Instant::now();
    dial.one_of_each(0, flow_count, ACK);
    while counts.connection_count() < u64::from(flow_count) {
        if start.elapsed() > ENTERING_MAX {
            let entered = counts.connection_count();
            return Err(format!("{entered} connections were entered of {flow_count}"));
        }
        control.wait_for(Duration::from_millis(5));
    }
    dial.random(flow_count, ACK);
    Ok(1e3 * per_ns(control, WARM_UP, WINDOW, |control| control.snapshot().sent))
}
