//! Packets of unknown flows: new connections, with room for them and in a full table.

use crate::Bench;
use hotloop_benches::bed::{Setup, Visited, to_enter};
use hotloop_benches::traffic::{ACK, SYN};
use hotloop_measure::contest::{Contest, Outcome, Side};

/// Connections that are established throughout.
const FLOW_COUNT: u32 = 1_000_000;

/// Number of new flows before the counted ones.
const TURN_FLOWS: u64 = 50_000;

/// Relative to the rate of hits.
const NEW_AIM: f64 = 0.55;

/// At most 1.2 times as long as new connections that find room.
const FULL_AIM: f64 = 1.0 / 1.2;

const HITS: &str = "hits";
const NEW: &str = "new connections";
const FULL: &str = "full table";
const FLOOD: &str = "SYN flood";
const FLOOD_WITHIN: &str = "SYN flood, full of SYNs";

/// Measurements of new flows.
pub struct Measured {
    flow_count: u32,
    roomy: Visited,
    full: Visited,
    /// Half full of earlier SYNs.
    flooded: Visited,
}

impl Measured {
    pub fn new(is_counting: bool) -> Self {
        let flow_count = to_enter(FLOW_COUNT, is_counting);
        let setup =
            |flow_count, connections_max| Setup { connections_max, ..Setup::hits(10, flow_count) };
        Self {
            flow_count,
            roomy: Visited::new(setup(flow_count, 2 * flow_count), 0),
            // The last few may find both their groups full before the table is.
            full: Visited::new(setup(flow_count + flow_count / 16, flow_count), 0),
            flooded: Visited::new(setup(flow_count, 2 * flow_count), flow_count),
        }
    }

    /// New connections beside hits, and full tables.
    pub fn contest(&self) -> Contest<'_> {
        let Self { flow_count, roomy, full, flooded } = self;
        let forget = || roomy.bed.with(|bed| bed.forget(*flow_count));
        let hits = Side::new(HITS, |count| {
            roomy.bed.with(|bed| {
                bed.hit(*flow_count);
                bed.play(count)
            })
        });
        let arrivals = [
            Side::new(NEW, |count| roomy.arrive(count, SYN)).reset(forget),
            Side::new(FULL, |count| full.arrive(count, ACK)),
            Side::new(FLOOD, |count| full.arrive(count, SYN)),
            Side::new(FLOOD_WITHIN, |count| flooded.arrive(count, SYN)),
        ];
        // Each connection once: time has passed, which the connection's first packet records.
        let hits = hits.reset(forget).pass(u64::from(*flow_count));
        let contest = Contest::new("balancer/arrivals").with(hits).visits_a_turn(2);
        arrivals.into_iter().fold(contest, |contest, side| contest.with(side.pass(TURN_FLOWS)))
    }

    /// Shows the contest's outcome, and ends the balancers.
    pub fn finish(self, bench: &mut Bench, outcome: Option<&Outcome>) -> Result<(), String> {
        if let Some(outcome) = outcome {
            show(bench, outcome);
            let full_count = self.full.bed.with(|bed| bed.connection_count());
            if full_count != u64::from(self.flow_count) {
                return Err(format!("{full_count} connections are left in the full table"));
            }
        }
        let all = [self.roomy, self.full, self.flooded];
        all.into_iter().try_for_each(|visited| visited.bed.finish())
    }
}

fn show(bench: &mut Bench, outcome: &Outcome) {
    let unit = "ns a packet";
    let rows = [
        ("new connections, beside 1M others", (NEW, HITS), NEW_AIM),
        ("packets of new flows, table full of established", (FULL, NEW), FULL_AIM),
        ("SYN flood, table full of established", (FLOOD, NEW), FULL_AIM),
        ("SYN flood, table half full of its SYNs", (FLOOD_WITHIN, NEW), FULL_AIM),
    ];
    let rows = rows.map(|(name, sides, aim)| outcome.row(name, unit, sides, aim));
    bench.table.rows.extend(rows);
}
