//! Packets of connections that are known: what nearly all are.

use crate::Bench;
use crate::bed::{Bed, Setup};
use hotloop::arena::{Arena, Pages, Request};
use hotloop::flow::Table;
use hotloop::packet::flow_key::FlowKeyV4;
use hotloop_benches::contest::{Contest, Outcome};
use hotloop_benches::peers::lines::RandomLines;
use hotloop_benches::row::{Row, median};
use hotloop_benches::traffic::Sizes;
use ipip_lb::connection::Connection;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How many connections, and how many random lines the balancer's own work may take at most.
struct Size {
    name: &'static str,
    flow_count: u32,
    lines_max: Option<f64>,
}

const SIZES: [Size; 3] = [
    Size { name: "1K", flow_count: 1_000, lines_max: None },
    Size { name: "1M", flow_count: 1_000_000, lines_max: Some(4.0) },
    Size { name: "8M", flow_count: 8_000_000, lines_max: Some(4.9) },
];

/// The size with which mixed lengths are shown.
const IMIX_SIZE: &str = "1M";

const SERVICES_FEW: u32 = 10;
const SERVICES_MANY: u32 = 10_000;

/// At most a tenth more with many services than with few.
const MANY_AIM: f64 = 1.0 / 1.1;

/// The names of the sides.
const FEW: &str = "10 services";
const MANY: &str = "10,000 services";
const HELLO: &str = "hello-forward";
const LINE: &str = "random line";
const IMIX: &str = "10 services, IMIX";
const HELLO_IMIX: &str = "hello-forward, IMIX";

/// All sizes; but for the largest, where it is to be quick.
pub fn bench(bench: &mut Bench) -> Result<(), String> {
    let count = if bench.quick { SIZES.len() - 1 } else { SIZES.len() };
    SIZES[..count].iter().try_for_each(|size| measure(bench, size))
}

fn measure(bench: &mut Bench, size: &Size) -> Result<(), String> {
    let Size { name, flow_count, .. } = *size;
    eprintln!("hits, {name} flows: entering them");
    let mut few = Bed::balancer(&Setup::hits(SERVICES_FEW, flow_count))?;
    let mut many = Bed::balancer(&Setup::hits(SERVICES_MANY, flow_count))?;
    let mut hello = Bed::hello_forward(flow_count, Sizes::Small)?;
    let mut lines = lines(flow_count)?;
    let mut mixed = None;
    if name == IMIX_SIZE {
        let setup = Setup { sizes: Sizes::Imix, ..Setup::hits(SERVICES_FEW, flow_count) };
        let hello = Bed::hello_forward(flow_count, Sizes::Imix)?;
        mixed = Some((Bed::balancer(&setup)?, hello));
    }
    let mut contest = Contest::new(&format!("balancer/hits/{name}"))
        .part(bench.part())
        .side(FEW, |count| few.play(count))
        .side(MANY, |count| many.play(count))
        .side(HELLO, |count| hello.play(count))
        .side(LINE, |count| fetched(&mut lines, count));
    if let Some((balancer, hello)) = &mut mixed {
        contest = contest
            .side(IMIX, |count| balancer.play(count))
            .side(HELLO_IMIX, |count| hello.play(count));
    }
    if let Some(outcome) = contest.run(&mut bench.criterion) {
        show(bench, size, &outcome);
    }
    let (balancer, hello_mixed) = mixed.unzip();
    let beds = [Some(few), Some(many), Some(hello), balancer, hello_mixed];
    beds.into_iter().flatten().try_for_each(Bed::finish)
}

/// Rows and notes of one size.
fn show(bench: &mut Bench, size: &Size, outcome: &Outcome) {
    let name = size.name;
    let hello = outcome.times_ns(HELLO);
    let own = |side| own_ns(&outcome.times_ns(side), &hello);
    let (few, many, line) = (own(FEW), own(MANY), outcome.times_ns(LINE));
    if let Some(lines_max) = size.lines_max {
        let counts: Vec<_> = few.iter().zip(&line).map(|(own, line)| own / line).collect();
        let row = format!("own work of a hit, {name} flows");
        bench.table.rows.push(Row::limit(&row, "random lines", &counts, lines_max));
    }
    let pairs: Vec<_> = many.iter().copied().zip(few.iter().copied()).collect();
    let row = format!("own work of a hit, {name} flows, {MANY}");
    bench.table.rows.push(Row::time(&row, FEW, "ns a packet", &pairs, MANY_AIM));
    bench.table.notes.push(format!(
        "hits, {name} flows: {:.1} ns a packet on one core, {:.1} in hello-forward, so {:.1} the \
         balancer's own; {:.1} with {MANY}; a random line {:.2} ns",
        outcome.median_ns(FEW),
        outcome.median_ns(HELLO),
        median(&few),
        median(&many),
        median(&line),
    ));
    if name == IMIX_SIZE {
        let own = own_ns(&outcome.times_ns(IMIX), &outcome.times_ns(HELLO_IMIX));
        bench.table.notes.push(format!(
            "hits, {name} flows, IMIX (frames of 64, 594 and 1,494 bytes as 7 to 4 to 1: the longest \
             fit 1,500 bytes once they are wrapped): {:.1} ns the balancer's own",
            median(&own)
        ));
    }
}

/// What a side takes beyond hello-forward, by round.
pub fn own_ns(side: &[f64], hello: &[f64]) -> Vec<f64> {
    side.iter().zip(hello).map(|(side, hello)| side - hello).collect()
}

/// As much memory as the table of so many connections takes, on pages like its.
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
