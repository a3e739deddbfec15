//! Two cores, one of which receives and the other balances, beside one that does both: whole engines
//! on threads of their own.

use crate::Bench;
use crate::configuration::{ONE_CORE, PIPELINE, configuration, egresses};
use hotloop::engine::{Control, Engine, outlets};
use hotloop::stage::Error;
use hotloop_benches::figure::Figure;
use hotloop_benches::row::Row;
use hotloop_benches::traffic::{ACK, Dial, Loop, Sizes, Writer};
use ipip_lb::balance::Route;
use ipip_lb::counts::WorkerCounts;
use ipip_lb::network_function::NetworkFunction;
use std::time::{Duration, Instant};

const SIZES: [(&str, u32); 3] = [("1K", 1_000), ("1M", 1_000_000), ("8M", 8_000_000)];

const ROUND_COUNT: usize = 3;

/// Buffers that go round: more than what both cores and the ring between them have in their hands.
const BUFFER_COUNT: usize = 1024;

/// How long packets of known connections come before they are counted, and then how long.
const WARM_UP: Duration = Duration::from_millis(50);
const WINDOW: Duration = Duration::from_millis(200);

/// How long entering the connections may take.
const ENTERING_MAX: Duration = Duration::from_secs(30);

/// Two cores are to do no less than one.
const AIM: f64 = 1.0;

/// All sizes; but for the largest, and once, where it is to be quick.
pub fn bench(bench: &mut Bench) -> Result<(), String> {
    let (size_count, round_count) =
        if bench.quick { (SIZES.len() - 1, 1) } else { (SIZES.len(), ROUND_COUNT) };
    for (name, flow_count) in &SIZES[..size_count] {
        eprintln!("pipeline, {name} flows");
        let round = |_| Ok((mpps(PIPELINE, *flow_count)?, mpps(ONE_CORE, *flow_count)?));
        let rounds = (0..round_count).map(round).collect::<Result<Vec<_>, String>>()?;
        let (pipeline, one): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
        let figures = (&Figure::of_rounds(&pipeline), &Figure::of_rounds(&one));
        let name = format!("pipeline 1 + 1, hits, {name} flows");
        bench.table.rows.push(Row::rate(&name, "one core", "Mpps", figures, AIM));
    }
    Ok(())
}

/// Millions of packets a second, of so many connections in random order.
fn mpps(deployment: &str, flow_count: u32) -> Result<f64, String> {
    let config = configuration(10, flow_count + flow_count / 16, deployment);
    let made = NetworkFunction::new(&config, egresses());
    let (function, steering) = made.map_err(|error| error.to_string())?;
    let packets = Loop::new(BUFFER_COUNT, Writer::new(Sizes::Small, 10));
    let graph = function.graph(
        |core| packets.source(core),
        |core| Ok::<_, Error>(outlets([(Route(0), packets.sink(core)?)])),
    );
    let plan = Engine::plan(graph, config.engine.deployment()).map_err(|it| it.to_string())?;
    let mut measured = Err("nothing was measured".to_owned());
    let run = plan.run(|control| {
        measured = observe(control, &packets.dial(), &steering.counts[0], flow_count);
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
    while counts.connections.count() < u64::from(flow_count) {
        if start.elapsed() > ENTERING_MAX {
            let entered = counts.connections.count();
            return Err(format!("{entered} connections were entered of {flow_count}"));
        }
        control.wait_for(Duration::from_millis(5));
    }
    dial.random(flow_count, ACK);
    control.wait_for(WARM_UP);
    let (start, before) = (Instant::now(), control.snapshot().sent);
    control.wait_for(WINDOW);
    Ok((control.snapshot().sent - before) as f64 / start.elapsed().as_secs_f64() / 1e6)
}
