//! The load that a core reports, compared with the true one: the offered rate relative to the
//! core's maximum, measured right before and right after.

use hotloop::engine::{Chain, Control, Deployment, LoadMeter, source};
use hotloop::packet::classify::{Depth, classify};
use hotloop::packet::seed::Seed;
use hotloop::prelude::*;
use hotloop_benches::buffer::Buffer;
use hotloop_benches::engines::{on_cpus, per_ns};
use hotloop_benches::traffic::{ACK, Generator, Loop, Writer};
use hotloop_measure::figure::Figure;
use hotloop_measure::row::Row;
use hotloop_measure::table::Table;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Percentages of the core's maximum.
const SHARES: [f64; 6] = [5.0, 25.0, 50.0, 75.0, 90.0, 95.0];

/// Maximum error of the load in percentage points.
const POINTS_MAX: f64 = 10.0;

const ROUND_COUNT: usize = 12;

/// Durations: of packets at a rate before counting, of measuring the core's maximum, and of
/// measuring the load.
const SETTLING: Duration = Duration::from_millis(20);
const FLOOD: Duration = Duration::from_millis(50);
const WINDOW: Duration = Duration::from_millis(200);

/// A round is left out if the core's maximum has changed by more than this.
const CHANGE_MAX: f64 = 0.05;

/// Number of buffers in circulation.
const BUFFER_COUNT: usize = 192;

/// Maximum number of waiting packets: later ones are lost.
const WAITING_MAX: f64 = 1024.0;

const FLOW_COUNT: u32 = 1_000;
const SERVICE_COUNT: u32 = 10;
const SEED: Seed = Seed::new(42);

/// Packets a nanosecond, as the bits of a float. Infinite means no limit.
type Rate = AtomicU64;

/// Packets that arrive evenly.
struct Offered {
    packets: Generator,
    rate: Arc<Rate>,
    at: Instant,
    waiting: f64,
}

impl Source for Offered {
    type Item = Buffer;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<Buffer>) -> usize {
        let passed = std::mem::replace(&mut self.at, Instant::now()).elapsed();
        let came = passed.as_nanos() as f64 * f64::from_bits(self.rate.load(Relaxed));
        // A NaN, from an infinite rate in no time, counts as the maximum.
        self.waiting = (self.waiting + came).min(WAITING_MAX);
        burst.set_limit((self.waiting as usize).min(BURST_CAPACITY));
        let count = self.packets.poll(burst);
        burst.set_limit(BURST_CAPACITY);
        self.waiting -= count as f64;
        count
    }
}

/// A round's result in percent: the true load, and the reported one.
type Round = (f64, f64);

/// A row for each share.
pub fn bench(table: &mut Table) -> hotloop::Result<()> {
    let cpus = core_affinity::get_core_ids().unwrap_or_default();
    let &[_, cpu, ..] = &cpus[..] else {
        table.unshown.push("the load of a core: there is one CPU".to_owned());
        return Ok(());
    };
    let packets = Loop::new(BUFFER_COUNT, Writer::new(SERVICE_COUNT));
    packets.dial().random(FLOW_COUNT, ACK);
    let rate = Arc::<Rate>::default();
    let offered = |core: &Core| {
        let (rate, at) = (Arc::clone(&rate), Instant::now());
        Ok::<_, hotloop::Error>(Offered { packets: packets.source(core)?, rate, at, waiting: 0.0 })
    };
    let look = |packet: Buffer| {
        black_box(classify(packet.data(), Depth::Innermost, &SEED));
        packet
    };
    let graph = source(offered).stage(move |_| each(look)).sink(|core| packets.sink(core));
    let plan = on_cpus(graph, Deployment::run_to_completion(1), &[cpu.id])?;
    let mut rounds = SHARES.map(|_| Vec::new());
    plan.run(|control| {
        let mut meter = LoadMeter::default();
        for _ in 0..ROUND_COUNT {
            for (share, rounds) in SHARES.iter().zip(&mut rounds) {
                rounds.extend(round(control, &rate, *share, &mut meter));
            }
        }
    })?;
    for (share, rounds) in SHARES.iter().zip(&rounds) {
        show(table, *share, rounds);
    }
    Ok(())
}

/// Offers a share of the core's maximum. `None` if the maximum has changed meanwhile.
fn round(control: &Control<'_>, rate: &Rate, share: f64, meter: &mut LoadMeter) -> Option<Round> {
    let most = || {
        rate.store(f64::INFINITY.to_bits(), Relaxed);
        per_ns(control, SETTLING, FLOOD, received)
    };
    let before = most();
    rate.store((before * share / 100.0).to_bits(), Relaxed);
    control.wait_for(SETTLING);
    meter.read(&control.load(), 1, |_| 1.0);
    let start = Instant::now();
    let offered = per_ns(control, Duration::ZERO, WINDOW, received);
    let (counts, passed) = (control.load(), start.elapsed());
    let shown = meter.read(&counts, passed.as_nanos() as u64, |_| 1.0)[0].load_percent?;
    let after = most();
    let has_changed = (after / before - 1.0).abs() > CHANGE_MAX;
    (!has_changed).then(|| (offered / f64::midpoint(before, after) * 100.0, shown))
}

fn received(control: &Control<'_>) -> u64 {
    control.snapshot().received
}

fn show(table: &mut Table, share: f64, rounds: &[Round]) {
    let name = format!("load shown at {share:.0} % of the most");
    if rounds.is_empty() {
        table.unshown.push(format!("{name}: what the core can take has changed in each round"));
        return;
    }
    let figure = |of: fn(&Round) -> f64| Figure::of_rounds(rounds.iter().map(of));
    let off = figure(|(offered, shown)| (shown - offered).abs());
    table.rows.push(Row::limit(&name, "points off", &off, POINTS_MAX));
    let (offered, shown) = (figure(|round| round.0).value, figure(|round| round.1).value);
    table.notes.push(format!(
        "{name}: {shown:.1} % shown, {offered:.1} % offered, in {} of {ROUND_COUNT} rounds",
        rounds.len()
    ));
}
