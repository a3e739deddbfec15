//! Connections that begin and end at a steady rate: the reference table has a tenth of them on another
//! backend, or none.

use super::side::{Side, apart, tables};
use super::{node::Nodes, prepare_ms_max, setup};
use core_affinity::CoreId;
use hotloop::packet::tcp::flags::FIN;
use hotloop_balancer::spec::Timeouts;
use hotloop_benches::bed::{Bed, LazyBed, Setup, Visited};
use hotloop_benches::traffic::{ACK, SYN};
use hotloop_measure::contest::{self, Contest};
use hotloop_measure::instrument::Instrument;
use std::time::{Duration, Instant};

/// Connections that begin in a slice of time: 100,000 a second.
const SLICE: Duration = Duration::from_millis(10);
const BEGIN_COUNT: u32 = 1_000;

/// A connection's first packet after its SYN comes in the next slice, and its FIN this many slices later.
const LIFE_SLICES: u32 = 100;

/// Slices that don't count, and those that do.
const WARM_UP_SLICES: u32 = 200;
const WINDOW_SLICES: u32 = 500;

/// Number of other connections, and room for those that have ended, too.
const FLOW_COUNT: u32 = 1_000_000;
const CONNECTIONS_MAX: u32 = 4_000_000;

/// Connections that are entered, and room for more, while instructions are counted.
const COUNTED_FLOWS: u32 = 1_000;
const COUNTED_MAX: u32 = 200_000;
const DAY_S: u32 = 86_400;

/// The contest for counts of instructions, and its sides: known connections, and those that begin.
const CONTEST: &str = "sessions";
const HITS: &str = "hits";
const SIDES: [&str; 2] = ["no exceptions", "a tenth exceptions"];

/// Figures of a window, for each second.
#[derive(Clone, Copy)]
pub struct Window {
    pub begin_count: f64,
    pub claim_count: f64,
    pub bytes: f64,
    /// CPU time of control's thread, and of the one that talks to the peer, in milliseconds.
    pub cpu_ms: [f64; 2],
}

/// The windows of one kind, and the instructions of a connection's first packet.
pub struct Steady {
    pub is_apart: bool,
    pub windows: Vec<Window>,
    pub instructions: Option<f64>,
}

/// The connections of the tables, as for the walks.
pub fn setup_of() -> Setup {
    Setup { connections_max: CONNECTIONS_MAX, ..setup(FLOW_COUNT) }
}

/// Plays this many windows of each kind by turns.
pub fn measure(
    core: CoreId,
    window_count: usize,
    instrument: &Instrument,
) -> Result<[Steady; 2], String> {
    eprintln!("a steady rate");
    let mut side = Side::new(&setup_of(), core, prepare_ms_max(CONNECTIONS_MAX))?;
    side.settle()?;
    let mut all = [false, true].map(|is_apart| {
        let name = SIDES[usize::from(is_apart)];
        let instructions = instrument.instructions(CONTEST, name);
        Steady { is_apart, windows: Vec::new(), instructions }
    });
    let mut next = FLOW_COUNT;
    for _ in 0..window_count {
        for steady in &mut all {
            side.begin_by(steady.is_apart)?;
            steady.windows.push(window(&mut side, &mut next)?);
        }
    }
    side.finish()?;
    Ok(all)
}

fn window(side: &mut Side, next: &mut u32) -> Result<Window, String> {
    play(&mut side.bed, next, WARM_UP_SLICES);
    let (heard, cpu_ns) = (side.heard(), side.control.cpu_ns()?);
    let took_s = play(&mut side.bed, next, WINDOW_SLICES).as_secs_f64();
    let (heard_after, cpu_ns_after) = (side.heard(), side.control.cpu_ns()?);
    let per_s = |before: u64, after: u64| (after - before) as f64 / took_s;
    Ok(Window {
        begin_count: f64::from(WINDOW_SLICES * BEGIN_COUNT) / took_s,
        claim_count: per_s(heard.claim_count, heard_after.claim_count),
        bytes: per_s(heard.bytes, heard_after.bytes),
        cpu_ms: [0, 1].map(|thread| per_s(cpu_ns[thread], cpu_ns_after[thread]) / 1e6),
    })
}

/// Plays slices, in which connections from flow `next` on begin. Returns how long that took.
fn play(bed: &mut Bed, next: &mut u32, slice_count: u32) -> Duration {
    let begin = Instant::now();
    for slice in 1..=slice_count {
        // Those before the first one have no packets.
        let begun = |slices_ago: u32| (*next - slices_ago * BEGIN_COUNT).max(FLOW_COUNT);
        for (slices_ago, flags) in [(LIFE_SLICES, FIN | ACK), (1, ACK)] {
            bed.play_each(begun(slices_ago)..begun(slices_ago - 1), flags);
        }
        bed.play_each(*next..*next + BEGIN_COUNT, SYN);
        *next += BEGIN_COUNT;
        bed.play_while(|_| begin.elapsed() < SLICE * slice, |_| ());
    }
    begin.elapsed()
}

/// The counted instructions of a packet of a known connection.
pub fn hit_instructions(instrument: &Instrument) -> Option<f64> {
    instrument.instructions(CONTEST, HITS)
}

/// Counts the instructions of connections' packets at a worker.
pub fn count(instrument: &mut Instrument) {
    let known = LazyBed::new(|| bed_to_count(false));
    let hits = contest::Side::new(HITS, |count| known.with(|bed| bed.play(count)));
    let beds = [false, true]
        .map(|is_apart| Visited::of(LazyBed::new(move || bed_to_count(is_apart)), COUNTED_FLOWS));
    let sides = SIDES.iter().zip(&beds);
    let contest = sides.fold(Contest::new(CONTEST).with(hits), |contest, (name, visited)| {
        contest.with(contest::Side::new(name, |count| visited.arrive(count, SYN)))
    });
    contest.run(instrument);
}

/// A worker in a cluster. Control takes nothing from its journal, which has room.
fn bed_to_count(is_apart: bool) -> Result<Bed, String> {
    let setup = Setup { connections_max: COUNTED_MAX, ..setup(COUNTED_FLOWS) };
    let mut config = Nodes::new(1)?.of_node(setup.configuration());
    // No walk begins while instructions are counted.
    config.balancer.timeouts = Timeouts {
        tcp_opening_s: DAY_S,
        tcp_established_s: DAY_S,
        tcp_closing_s: DAY_S,
        udp_s: DAY_S,
        other_s: DAY_S,
    };
    let (mut bed, mut handles, asker) = Bed::sharing(&setup, &config)?;
    let tables = tables(&config, &mut handles)?;
    handles.publisher.publish(apart(&tables, is_apart));
    // It finds the exceptions of the new table here.
    bed.play(u64::from(COUNTED_FLOWS) * 64);
    // As long as the worker.
    Box::leak(Box::new((handles, asker)));
    Ok(bed)
}
