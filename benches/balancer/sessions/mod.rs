//! The cost of sharing sessions among the nodes of a cluster, for a worker, control and the
//! network: a group of its own.
//!
//! `cargo xtask bench sessions`. `--quick` leaves out the larger table, and plays few rounds.

mod node;
mod page;
mod rounds;
mod side;
mod steady;

use crate::growth::short;
use core_affinity::CoreId;
use hotloop_benches::bed::Setup;
use hotloop_measure::cores::Pair;
use hotloop_measure::hugepages::Reserved;
use hotloop_measure::instrument::Instrument;
use hotloop_measure::table::{Table, write};
use rounds::{Measured, Notes, Rounds};
use side::Side;

/// The name of the group.
pub const GROUP: &str = "sessions";

/// Numbers of connections.
const FLOW_COUNTS: [u32; 2] = [1_000_000, 10_000_000];

const SERVICE_COUNT: u32 = 10;

/// One of them is drained, so that a tenth of the connections are exceptions.
const BACKEND_COUNT: u32 = 10;

/// Rounds of each size, and walks per round: every other walk begins exceptions, and the next one
/// ends them. Walks of the larger size take ten times as long.
const ROUND_COUNTS: [(usize, usize); 2] = [(12, 4), (8, 2)];
const ROUND_COUNT_QUICK: usize = 4;

/// Windows of each kind at a steady rate.
const WINDOW_COUNT: usize = 5;
const WINDOW_COUNT_QUICK: usize = 1;

/// Two identical workers: one walks, the other does not.
const SIDE_COUNT: usize = 2;

/// Measures all sizes.
pub fn run(words: &[&str]) -> Result<(), String> {
    let mut instrument = Instrument::new(false, false)?;
    if instrument.is_counting() {
        steady::count(&mut instrument);
        return Ok(());
    }
    let is_quick = words.contains(&"--quick");
    let size_count = if is_quick { 1 } else { FLOW_COUNTS.len() };
    let mut table = Table::default();
    let setups = FLOW_COUNTS[..size_count].iter().map(|flow_count| setup(*flow_count));
    let setups: Vec<_> = setups.collect();
    let of_walks: usize = setups.iter().map(|setup| SIDE_COUNT * setup.hugepage_count()).sum();
    let reserved = Reserved::hugepages(of_walks + steady::setup_of().hugepage_count());
    if let Err(reason) = &reserved {
        table.unshown.push(format!("all sizes on reserved 2 MiB pages: {reason}"));
    }
    let (mut all, mut steady) = (Vec::new(), None);
    // Once this thread is pinned to the first CPU, it may use no other.
    let core = core_affinity::get_core_ids().and_then(|cores| cores.get(1).copied());
    Pair::pin()?;
    match core {
        Some(core) => {
            for (setup, (round_count, walk_count)) in setups.iter().zip(ROUND_COUNTS) {
                let round_count = if is_quick { ROUND_COUNT_QUICK } else { round_count };
                all.push(measure(setup, core, (round_count, walk_count))?);
            }
            let window_count = if is_quick { WINDOW_COUNT_QUICK } else { WINDOW_COUNT };
            steady = Some(steady::measure(core, window_count, &instrument)?);
        }
        None => table.unshown.push("a worker and control on two CPUs: there is one".to_owned()),
    }
    drop(reserved);
    table.rows = all.iter().map(Measured::row).collect();
    table.notes = page::notes(&all);
    let hit = steady::hit_instructions(&instrument);
    let hit =
        hit.map(|count| format!("a packet of a known connection takes {count:.1} instructions"));
    table.notes.extend(hit);
    table.print();
    let page = page::markdown((&all, steady.as_ref()), &table);
    for (extension, text) in [("json", table.json()), ("md", page)] {
        write(GROUP, extension, &text)?;
    }
    Ok(())
}

fn setup(flow_count: u32) -> Setup {
    Setup { backend_count: BACKEND_COUNT, ..Setup::hits(SERVICE_COUNT, flow_count) }
}

/// A second for each million connections: as long as bursts allow.
fn prepare_ms_max(flow_count: u32) -> u32 {
    flow_count / 1_000
}

/// All rounds of a size: this thread is the worker of both sides.
fn measure(
    setup: &Setup,
    core: CoreId,
    (round_count, walk_count): (usize, usize),
) -> Result<Measured, String> {
    eprintln!("{} connections", short(setup.flow_count));
    let side = || Side::new(setup, core, prepare_ms_max(setup.flow_count));
    let notes = [Notes::new(), Notes::new()];
    let mut rounds = Rounds { sides: [side()?, side()?], notes };
    let walks = (0..round_count).map(|round| rounds.walks(round, walk_count));
    let walks = walks.collect::<Result<_, _>>()?;
    let snapshots = (0..round_count.div_ceil(4)).map(|round| rounds.snapshot(round));
    let snapshots = snapshots.collect::<Result<_, _>>()?;
    let memory_bytes = setup.connections_bytes();
    rounds.sides.into_iter().try_for_each(Side::finish)?;
    Ok(Measured { flow_count: setup.flow_count, memory_bytes, walks, snapshots })
}
