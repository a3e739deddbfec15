//! Packets of connections that both balancers know.

use crate::lazy::LazyKatran;
use crate::objects::Objects;
use crate::{BACKEND_COUNT, DRIVER, HELLO, KATRAN, OURS, SERVICE_COUNT, UNIT, WARM_COUNT};
use crate::{net, settings};
use hotloop_benches::bed::{Bed, LazyBed, Setup, to_enter};
use hotloop_benches::traffic::ACK;
use hotloop_measure::contest::{Contest, Outcome, PASS_MAX, Side};
use hotloop_measure::row::Row;
use hotloop_measure::table::Table;

/// A number of connections, and the target speed of ipip-lb relative to Katran's.
struct Size {
    name: &'static str,
    flow_count: u32,
    /// The whole path from source to sink, relative to Katran.
    aim: f64,
    /// The balancer's own work, relative to Katran.
    own_aim: f64,
    /// Visits in each turn: more if Katran warms up for longer.
    visits_a_turn: usize,
}

const SIZES: [Size; 3] = [
    Size { name: "1K", flow_count: 1 << 10, aim: 5.0, own_aim: 5.0, visits_a_turn: 2 },
    Size { name: "64K", flow_count: 1 << 16, aim: 9.0, own_aim: 10.0, visits_a_turn: 4 },
    Size { name: "1M", flow_count: 1 << 20, aim: 12.0, own_aim: 13.0, visits_a_turn: 6 },
];

/// The longest warm-up of Katran, in packets. After this many it is as fast as after [`PASS_MAX`].
const KATRAN_PASS_MAX: u64 = PASS_MAX / 2;

/// A size, and its sides.
pub struct Measured {
    size: &'static Size,
    /// Packets of a warm-up.
    pass: u64,
    ours: LazyBed,
    hello: LazyBed,
    katran: LazyKatran,
    is_counting: bool,
}

/// All sizes; without the largest in a quick run.
pub fn sizes(objects: &Objects, quick: bool, is_counting: bool) -> Vec<Measured> {
    let count = if quick { SIZES.len() - 1 } else { SIZES.len() };
    SIZES[..count].iter().map(|size| Measured::new(size, objects, is_counting)).collect()
}

impl Measured {
    fn new(size: &'static Size, objects: &Objects, is_counting: bool) -> Self {
        let flow_count = to_enter(size.flow_count, is_counting);
        let setup =
            Setup { backend_count: BACKEND_COUNT, ..Setup::hits(SERVICE_COUNT, flow_count) };
        let katran =
            LazyKatran::new(&objects.katran, settings(setup.connections_max), flow_count, true);
        Self {
            size,
            pass: u64::from(flow_count).min(PASS_MAX),
            ours: LazyBed::new(move || Bed::balancer(&setup)),
            hello: LazyBed::new(move || Bed::hello_forward(flow_count)),
            katran,
            is_counting,
        }
    }

    /// Both balancers, hello-forward's graph, and Katran's driver.
    pub fn contest(&self) -> Contest<'_> {
        let (pass, flow_count) = (self.pass, self.size.flow_count);
        let ours = Side::new(OURS, |count| self.ours.with(|bed| bed.play(count))).pass(pass);
        let hello = Side::new(HELLO, |count| self.hello.with(|bed| bed.play(count))).pass(pass);
        let contest = Contest::new(&format!("katran/hits/{}", self.size.name));
        let contest = contest.with(ours).with(hello).visits_a_turn(self.size.visits_a_turn);
        if self.is_counting {
            // Callgrind does not see code that the kernel runs.
            return contest;
        }
        let katran = move |count| {
            self.katran.play(pass.min(KATRAN_PASS_MAX), count, |katran| {
                katran.dial_random(flow_count, ACK)
            })
        };
        let driver = move |count| {
            self.katran.drive(WARM_COUNT, count, |katran| katran.dial_random(flow_count, ACK))
        };
        contest.with(Side::new(KATRAN, katran).sleeps()).with(Side::new(DRIVER, driver).sleeps())
    }

    /// Checks the counters, shows the outcome, and ends the balancers.
    pub fn finish(self, table: &mut Table, outcome: Option<&Outcome>) -> Result<(), String> {
        let name = self.size.name;
        self.katran.check(false).map_err(|error| format!("hits, {name} flows: {error}"))?;
        if let Some(outcome) = outcome {
            show(table, self.size, outcome);
        }
        self.ours.finish()?;
        self.hello.finish()
    }
}

/// Rows and a note of one size.
fn show(table: &mut Table, size: &Size, outcome: &Outcome) {
    let (whole, hello) = (outcome.figure(OURS), outcome.figure(HELLO));
    let own = whole.with(&hello, |whole, hello| whole - hello);
    let (driven, driver, net) = (outcome.figure(KATRAN), outcome.figure(DRIVER), net(outcome));
    let counts = [OURS, HELLO].map(|side| outcome.instructions(side));
    let own_count = counts[0].zip(counts[1]).map(|(whole, hello)| whole - hello);
    let Size { name, aim, own_aim, .. } = size;
    let row = format!("hits, {name} flows, from source to sink");
    let row = Row::time(&row, KATRAN, UNIT, (&whole, &net), *aim);
    table.rows.push(row.counted([counts[0], None]));
    let row = format!("hits, {name} flows, own work");
    let row = Row::time(&row, KATRAN, UNIT, (&own, &net), *own_aim);
    table.rows.push(row.counted([own_count, None]));
    table.notes.push(format!(
        "hits, {name} flows: {:.1} ns a packet in ipip-lb, {:.1} in hello-forward; {:.1} in Katran with its driver, {:.1} in \
         the driver alone",
        whole.value, hello.value, driven.value, driver.value,
    ));
}
