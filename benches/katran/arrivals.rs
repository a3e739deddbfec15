//! New connections beside a million others. Both balancers enter every one.

use crate::lazy::LazyKatran;
use crate::objects::Objects;
use crate::{BACKEND_COUNT, DRIVER, KATRAN, OURS, SERVICE_COUNT, UNIT, WARM_COUNT};
use crate::{net, settings};
use hotloop_benches::bed::{Setup, Visited, to_enter};
use hotloop_benches::peers::katran::Katran;
use hotloop_benches::traffic::SYN;
use hotloop_measure::contest::{Contest, Outcome, Side};
use hotloop_measure::row::Row;
use hotloop_measure::table::Table;
use std::cell::Cell;

/// Connections that are established throughout.
const FLOW_COUNT: u32 = 1_000_000;

/// Number of new flows before the measured ones.
const TURN_FLOWS: u64 = 50_000;

/// Number of the latest connections that Katran must know at the end.
const KNOWN_COUNT: u32 = 1_000;

/// As with hits of few connections.
const AIM: f64 = 5.0;

/// Both balancers, and the next unseen flow of each.
pub struct Measured {
    flow_count: u32,
    ours: Visited,
    katran: LazyKatran,
    katran_next: Cell<u32>,
    is_counting: bool,
}

impl Measured {
    pub fn new(objects: &Objects, is_counting: bool) -> Self {
        let flow_count = to_enter(FLOW_COUNT, is_counting);
        let connections_max = 2 * flow_count;
        let setup = Setup {
            backend_count: BACKEND_COUNT,
            connections_max,
            ..Setup::hits(SERVICE_COUNT, flow_count)
        };
        // Katran's connections end only when others take their places: its table is full from the beginning.
        let katran =
            LazyKatran::new(&objects.unlimited, settings(connections_max), connections_max, false);
        Self {
            flow_count,
            ours: Visited::new(setup, 0),
            katran,
            katran_next: Cell::new(connections_max),
            is_counting,
        }
    }

    /// Both balancers, and Katran's driver.
    pub fn contest(&self) -> Contest<'_> {
        let forget = || self.ours.bed.with(|bed| bed.forget(self.flow_count));
        let ours = Side::new(OURS, |count| self.ours.arrive(count, SYN));
        let ours = ours.reset(forget).pass(TURN_FLOWS);
        let contest = Contest::new("katran/arrivals").with(ours).visits_a_turn(4);
        if self.is_counting {
            return contest;
        }
        let katran = |count| {
            let first = self.katran_next.get();
            let flow_count = Katran::packets_of(TURN_FLOWS, count) as u32;
            self.katran_next.set(first + flow_count);
            self.katran.play(TURN_FLOWS, count, |katran| katran.dial_each(first, SYN))
        };
        let driver =
            |count| self.katran.drive(WARM_COUNT, count, |katran| katran.dial_each(0, SYN));
        contest.with(Side::new(KATRAN, katran).sleeps()).with(Side::new(DRIVER, driver).sleeps())
    }

    /// Checks the counters, shows the outcome, and ends the balancer.
    pub fn finish(self, table: &mut Table, outcome: Option<&Outcome>) -> Result<(), String> {
        let failed = |error| format!("new connections: {error}");
        self.katran.check(true).map_err(failed)?;
        let last = self.katran_next.get() - KNOWN_COUNT;
        self.katran.check_known(last, KNOWN_COUNT).map_err(failed)?;
        if let Some(outcome) = outcome {
            let (ours, net) = (outcome.figure(OURS), net(outcome));
            let name = "new connections beside 1M others, from source to sink";
            let row = Row::time(name, KATRAN, UNIT, (&ours, &net), AIM);
            table.rows.push(row.counted([outcome.instructions(OURS), None]));
        }
        self.ours.bed.finish()
    }
}
