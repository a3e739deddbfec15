//! Packets of known connections, which nearly all packets are.

use crate::Bench;
use hotloop::arena::{Arena, Pages, Request};
use hotloop::flow::Table;
use hotloop::packet::flow_key::FlowKeyV4;
use hotloop_balancer::connection::Connection;
use hotloop_benches::bed::{Bed, LazyBed, Setup, to_enter};
use hotloop_benches::peers::lines::RandomLines;
use hotloop_measure::contest::{Bursts, Contest, Outcome, PASS_MAX, Side};
use hotloop_measure::figure::Figure;
use hotloop_measure::row::Row;
use std::cell::RefCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A number of connections, and the limits for instructions and random lines of the balancer's own
/// work.
struct Size {
    name: &'static str,
    flow_count: u32,
    instructions_max: f64,
    lines_max: Option<f64>,
}

const SIZES: [Size; 3] = [
    Size { name: "1K", flow_count: 1_000, instructions_max: 285.0, lines_max: None },
    Size { name: "1M", flow_count: 1_000_000, instructions_max: 320.0, lines_max: Some(4.2) },
    Size { name: "8M", flow_count: 8_000_000, instructions_max: 320.0, lines_max: Some(4.2) },
];

const SERVICES_FEW: u32 = 10;
const SERVICES_MANY: u32 = 10_000;

/// At most 1.08 times the time with few services.
const MANY_AIM: f64 = 1.0 / 1.08;

/// The names of the sides.
const FEW: &str = "10 services";
const MANY: &str = "10,000 services";
const HELLO: &str = "hello-forward";
const LINE: &str = "random line";

/// A size, and its measured parameters.
pub struct Measured {
    size: &'static Size,
    /// Packets of a warm-up.
    pass: u64,
    lines: RefCell<RandomLines>,
    sides: [(&'static str, LazyBed, Bursts); 3],
}

/// All sizes; without the largest in a quick run.
pub fn sizes(bench: &Bench) -> Result<Vec<Measured>, String> {
    let count = if bench.quick { SIZES.len() - 1 } else { SIZES.len() };
    SIZES[..count].iter().map(|size| Measured::new(size, bench.instrument.is_counting())).collect()
}

impl Measured {
    fn new(size: &'static Size, is_counting: bool) -> Result<Self, String> {
        let flow_count = to_enter(size.flow_count, is_counting);
        let balancer = |service_count| {
            LazyBed::new(move || Bed::balancer(&Setup::hits(service_count, flow_count)))
        };
        let hello = LazyBed::new(move || Bed::hello_forward(flow_count));
        let sides =
            [(FEW, balancer(SERVICES_FEW)), (MANY, balancer(SERVICES_MANY)), (HELLO, hello)];
        let sides = sides.map(|(name, bed)| (name, bed, Bursts::default()));
        let lines = RefCell::new(lines(flow_count)?);
        Ok(Self { size, pass: u64::from(flow_count).min(PASS_MAX), lines, sides })
    }

    /// The balancer with few services and with many, hello-forward's graph, and random lines.
    pub fn contest(&self) -> Contest<'_> {
        let lines = Side::new(LINE, |count| fetched(&mut self.lines.borrow_mut(), count));
        let contest = Contest::new(&format!("balancer/hits/{}", self.size.name));
        self.sides.iter().fold(contest.with(lines.pass(self.pass)), |contest, side| {
            let (name, bed, bursts) = side;
            let side = Side::new(name, |count| bed.play_timed(count, bursts));
            contest.with(side.bursts(bursts).pass(self.pass))
        })
    }

    /// Shows the contest's outcome, and ends the balancers.
    pub fn finish(self, bench: &mut Bench, outcome: Option<&Outcome>) -> Result<(), String> {
        if let Some(outcome) = outcome {
            show(bench, self.size, outcome);
        }
        self.sides.into_iter().try_for_each(|(_, bed, _)| bed.finish())
    }
}

/// Rows and notes of one size.
fn show(bench: &mut Bench, size: &Size, outcome: &Outcome) {
    let name = size.name;
    let hello = outcome.figure(HELLO);
    let own = |side| outcome.figure(side).with(&hello, |all, hello| all - hello);
    let own_count = |side| Some(outcome.instructions(side)? - outcome.instructions(HELLO)?);
    let (few, many, line) = (own(FEW), own(MANY), outcome.figure(LINE));
    let row = format!("own work of a hit, {name} flows");
    if let Some(count) = own_count(FEW) {
        let limit = size.instructions_max;
        bench.table.rows.push(Row::limit(&row, "instructions", &Figure::exact(count), limit));
    }
    if let Some(lines_max) = size.lines_max {
        let counts = few.with(&line, |own, line| own / line);
        let counted = [own_count(FEW), None];
        let row = Row::limit(&row, "random lines", &counts, lines_max).counted(counted);
        bench.table.rows.push(row);
    }
    let row = Row::time(&format!("{row}, {MANY}"), FEW, "ns a packet", (&many, &few), MANY_AIM);
    bench.table.rows.push(row.counted([own_count(MANY), own_count(FEW)]));
    let burst_ns = |side| {
        let [median, most, nearly_all] =
            [0.5, 0.99, 0.999].map(|share| outcome.burst_time(side, share).value);
        format!("{median:.0} ns (median), {most:.0} ns (99 %), {nearly_all:.0} ns (99.9 %)")
    };
    bench.table.notes.push(format!(
        "a burst of 64 hits, {name} flows, takes {}; in hello-forward {}",
        burst_ns(FEW),
        burst_ns(HELLO),
    ));
    bench.table.notes.push(format!(
        "hits, {name} flows: {:.1} ns a packet on one core, {:.1} in hello-forward, so {:.1} the \
         balancer's own; {:.1} with {MANY}; a random line {:.2} ns",
        outcome.figure(FEW).value,
        hello.value,
        few.value,
        many.value,
        line.value,
    ));
}

/// Memory of the same size as a table of `flow_count` connections, on the same kind of pages.
fn lines(flow_count: u32) -> Result<RandomLines, String> {
    let capacity = Setup::hits(SERVICES_FEW, flow_count).connections_max as usize;
    let bytes = Table::<FlowKeyV4, Connection>::bytes(capacity).expect("can be addressed");
    let request = Request::new(bytes + (4 << 10));
    let (arena, obtained) = Arena::new(request).map_err(|error| error.to_string())?;
    if obtained.pages != Pages::Huge {
        eprintln!("not on reserved pages of 2 MiB: {obtained}");
    }
    RandomLines::new(&arena, bytes).map_err(|error| error.to_string())
}

fn fetched(lines: &mut RandomLines, count: u64) -> Duration {
    let start = Instant::now();
    black_box(lines.fetch(count));
    start.elapsed()
}
