//! The cost of a packet, fitted to the work for it and to the share of packets that cross to
//! another core; and predictions for more cores.

use super::reflector::Flows;
use hotloop::dpdk::{Eal, Mbuf, Port};
use hotloop::engine::{Chain, Control, Deployment, Graph, source};
use hotloop::prelude::*;
use hotloop_benches::engines::{on_cpus, per_ns};
use hotloop_measure::distance::trip_ns;
use hotloop_measure::figure::lower_quartile;
use std::fmt::Write;
use std::time::Duration;

/// Numbers of look-ups in a flow table for each packet.
const WORKS: [u32; 4] = [1, 2, 4, 8];

/// Number of packets out of four that cross.
const SHARES: [u32; 4] = [0, 1, 2, 4];
const SHARE_OF: u32 = 4;

/// Numbers of look-ups for each packet that has crossed, if the second core is the limit.
const WORKS_AFTER: [u32; 4] = [2, 4, 8, 16];

/// Number of look-ups for predictions.
const WORK_FORESEEN: u32 = 4;

/// Numbers of cores for predictions.
const CORE_COUNTS: [usize; 5] = [1, 2, 4, 8, 15];

const ROUND_COUNT: usize = 8;

/// How long an engine runs before it is measured, and how long it is measured.
const WARM_UP: Duration = Duration::from_millis(50);
const WINDOW: Duration = Duration::from_millis(150);

/// The parameters of a measured engine.
#[derive(Clone, Copy)]
struct Setting {
    /// Receiving cores, and cores that packets cross to.
    groups: [usize; 2],
    work_before: u32,
    share: u32,
    work_after: u32,
}

/// A fit: the cost of each term in nanoseconds, and the residuals of points.
struct Fit<const N: usize> {
    costs_ns: [f64; N],
    /// The root mean square and the maximum, relative to the measured values.
    residuals: [f64; 2],
}

/// The points, the fits, and the predictions, in Markdown.
///
/// # Errors
/// If an engine does not start.
pub fn text() -> hotloop::Result<String> {
    let cpus: Vec<_> = core_affinity::get_core_ids().unwrap_or_default();
    let cpus: Vec<_> = cpus.iter().map(|cpu| cpu.id).collect();
    if cpus.len() < 2 {
        return Ok("Not measured: there is one CPU.\n".to_owned());
    }
    let eal = Eal::embedded()?;
    let trip = || trip_ns().ok().flatten().unwrap_or(f64::NAN);
    let line_before_ns = trip();
    let before = WORKS.iter().flat_map(|work| SHARES.iter().map(move |share| (*work, *share)));
    let before: Vec<_> = before.collect();
    let setting_before = |&(work_before, share): &(u32, u32)| Setting {
        groups: [1, 1],
        work_before,
        share,
        work_after: 0,
    };
    let setting_after =
        |&work_after: &u32| Setting { groups: [1, 1], work_before: 0, share: SHARE_OF, work_after };
    let counts: Vec<_> = CORE_COUNTS.into_iter().filter(|count| *count <= cpus.len()).collect();
    let setting_whole = |&count: &usize| Setting {
        groups: [count, 0],
        work_before: WORK_FORESEEN,
        share: SHARE_OF,
        work_after: 0,
    };
    let settings: Vec<_> = before
        .iter()
        .map(setting_before)
        .chain(WORKS_AFTER.iter().map(setting_after))
        .chain(counts.iter().map(setting_whole))
        .collect();
    let mut rounds_ns = vec![Vec::new(); settings.len()];
    for round in 0..ROUND_COUNT {
        eprintln!("what a packet costs, round {} of {ROUND_COUNT}", round + 1);
        for (setting, rounds_ns) in settings.iter().zip(&mut rounds_ns) {
            rounds_ns.push(setting.packet_ns(eal, &cpus)?);
        }
    }
    // Disturbances make a round slower, never faster.
    let packets_ns: Vec<_> = rounds_ns.iter().map(|rounds| lower_quartile(rounds)).collect();
    let (before_ns, rest_ns) = packets_ns.split_at(before.len());
    let (after_ns, whole_ns) = rest_ns.split_at(WORKS_AFTER.len());
    let share = |share: u32| f64::from(share) / f64::from(SHARE_OF);
    let point = |(&(work, crossing), &ns): (&(u32, u32), &f64)| {
        ([1.0, f64::from(work), share(crossing)], ns)
    };
    let points: Vec<_> = before.iter().zip(before_ns).map(point).collect();
    let (receiver, worker) = (fit(&points), fit(&worker_points(after_ns)));
    let mut text = fits_text(&points, &receiver, &worker);
    let lines = format!("{line_before_ns:.0} and {:.0}", trip());
    writeln!(text, "\nA bare cache line took {lines} ns from core to core, before and after.\n")
        .expect("text grows");
    foresee(&mut text, &receiver, &worker, whole_ns, &counts).expect("text grows");
    Ok(text)
}

fn worker_points(after_ns: &[f64]) -> Vec<([f64; 2], f64)> {
    WORKS_AFTER.iter().zip(after_ns).map(|(work, ns)| ([1.0, f64::from(*work)], *ns)).collect()
}

fn fits_text(points: &[([f64; 3], f64)], receiver: &Fit<3>, worker: &Fit<2>) -> String {
    let mut text =
        "| look-ups | share that crosses | measured, ns | fitted, ns |\n|---|---|---|---|\n"
            .to_owned();
    for (terms, ns) in points {
        let fitted_ns: f64 =
            terms.iter().zip(receiver.costs_ns).map(|(term, cost)| term * cost).sum();
        let [_, work, share] = terms;
        text += &format!("| {work} | {share:.2} | {ns:.2} | {fitted_ns:.2} |\n");
    }
    let [own, look_up, crossing] = receiver.costs_ns;
    let [own_after, look_up_after] = worker.costs_ns;
    let percent = |residuals: [f64; 2]| {
        format!(
            "{:.1} % (root of the mean square), {:.1} % at most",
            residuals[0] * 100.0,
            residuals[1] * 100.0
        )
    };
    text + &format!(
        "\nCPU time of the core that receives: {own:.2} ns a packet, {look_up:.2} for each look-up, {crossing:.2} more where \
         it crosses; residual {}, of {} points. Of the core that it crosses to: {own_after:.2} ns and {look_up_after:.2} for \
         each look-up; residual {}, of {} points.\n",
        percent(receiver.residuals),
        points.len(),
        percent(worker.residuals),
        WORKS_AFTER.len(),
    )
}

/// Predictions for these numbers of cores, compared with measurements.
fn foresee(
    text: &mut String,
    receiver: &Fit<3>,
    worker: &Fit<2>,
    whole_ns: &[f64],
    counts: &[usize],
) -> std::fmt::Result {
    let work = f64::from(WORK_FORESEEN);
    let [own, look_up, crossing] = receiver.costs_ns;
    let whole_packet_ns = own + look_up * work;
    let (dispatch_ns, work_ns) = (own + crossing, worker.costs_ns[0] + worker.costs_ns[1] * work);
    writeln!(text, "With {WORK_FORESEEN} look-ups a packet:\n")?;
    writeln!(
        text,
        "| cores | run-to-completion, Mpps | measured | pipeline, best split, Mpps | |\n|---|---|---|---|---|"
    )?;
    for count in CORE_COUNTS {
        let whole = count as f64 / whole_packet_ns * 1e3;
        let split = |dispatchers: usize| {
            let workers = count - dispatchers;
            (dispatchers as f64 / dispatch_ns).min(workers as f64 / work_ns) * 1e3
        };
        let best = (1..count).max_by(|a, b| split(*a).total_cmp(&split(*b)));
        let best = best.map_or("-".to_owned(), |dispatchers| {
            format!("{dispatchers} + {}: {:.1}", count - dispatchers, split(dispatchers))
        });
        let measured = counts.iter().zip(whole_ns).find(|it| *it.0 == count);
        let (measured, source) = match measured {
            Some((_, ns)) => (format!("{:.1}", 1e3 / ns), "fitted"),
            None => ("-".to_owned(), "extrapolated: more cores than this machine has"),
        };
        writeln!(text, "| {count} | {whole:.1} | {measured} | {best} | {source} |")?;
    }
    Ok(())
}

/// The costs with the least squares of relative residuals.
fn fit<const N: usize>(points: &[([f64; N], f64)]) -> Fit<N> {
    // Each row is a term's normal equation, and its right side.
    let (mut rows, mut sums) = ([[0.0; N]; N], [0.0; N]);
    for (terms, ns) in points {
        for ((row, sum), term) in rows.iter_mut().zip(&mut sums).zip(terms) {
            *sum += term / ns;
            row.iter_mut().zip(terms).for_each(|(it, other)| *it += term * other / (ns * ns));
        }
    }
    for pivot in 0..N {
        let (of_pivot, pivot_sum) = (rows[pivot], sums[pivot]);
        let others =
            rows.iter_mut().zip(&mut sums).enumerate().filter(|(index, _)| *index != pivot);
        for (_, (row, sum)) in others {
            let factor = row[pivot] / of_pivot[pivot];
            row.iter_mut().zip(of_pivot).for_each(|(it, other)| *it -= other * factor);
            *sum -= pivot_sum * factor;
        }
    }
    let costs_ns = std::array::from_fn(|term| sums[term] / rows[term][term]);
    let off = |(terms, ns): &([f64; N], f64)| {
        let fitted_ns: f64 = terms.iter().zip(costs_ns).map(|(term, cost)| term * cost).sum();
        (fitted_ns / ns - 1.0).abs()
    };
    let all: Vec<_> = points.iter().map(off).collect();
    let mean_square = all.iter().map(|off| off * off).sum::<f64>() / all.len() as f64;
    Fit { costs_ns, residuals: [mean_square.sqrt(), all.iter().copied().fold(0.0, f64::max)] }
}

impl Setting {
    /// Nanoseconds per packet of the core that is the limit; of all cores together if each does
    /// everything.
    fn packet_ns(self, eal: Eal, cpus: &[usize]) -> hotloop::Result<f64> {
        let open = |index| Port::open(eal, &format!("net_null{index},size=64,copy=0"));
        let (from, to) = (open(0)?, open(1)?);
        let graph = source(|core| from.rx_queue(core))
            .try_stage(|_| Work::new(self.work_before, self.share))
            .handoff()
            .try_stage(|_| Work::new(self.work_after, SHARE_OF))
            .sink(|core| to.tx_queue(core));
        match self.groups {
            [count, 0] => {
                run(graph, Deployment::run_to_completion(count), cpus, |it| it.snapshot().sent)
            }
            groups if self.work_after > 0 => {
                run(graph, Deployment::pipeline(groups), cpus, |it| it.snapshot().sent)
            }
            groups => run(graph, Deployment::pipeline(groups), cpus, |it| it.snapshot().received),
        }
    }
}

/// Runs an engine and measures the time per packet counted.
fn run(
    graph: impl Graph,
    deployment: Deployment,
    cpus: &[usize],
    count: impl Fn(&Control<'_>) -> u64,
) -> hotloop::Result<f64> {
    let cpus = &cpus[..deployment.core_count()];
    let plan = on_cpus(graph, deployment, cpus)?;
    let mut packet_ns = f64::NAN;
    plan.run(|control| packet_ns = 1.0 / per_ns(control, WARM_UP, WINDOW, count))?;
    Ok(packet_ns)
}

drop_reasons! {
    /// Why a packet goes no further.
    pub enum WorkDrop {
        /// The packet is one of those that don't cross.
        Kept = "kept",
    }
}

/// Looks up flows for each packet, and passes some out of four on.
struct Work {
    flows: Flows,
    work: u32,
    share: u32,
    /// The next flow to look up, and the next packet's number.
    flow: u32,
    packet: u32,
}

impl Work {
    fn new(work: u32, share: u32) -> hotloop::Result<Self> {
        Ok(Self { flows: Flows::full()?, work, share, flow: 0, packet: 0 })
    }
}

impl Stage<Mbuf> for Work {
    type Out = Mbuf;
    type Drop = WorkDrop;

    #[inline]
    fn packet(&mut self, cx: &mut Cx<'_, WorkDrop>, packet: Mbuf) -> Verdict<Mbuf> {
        let now_ns = cx.now().as_ns();
        for _ in 0..self.work {
            self.flows.look_up(self.flow, now_ns);
            self.flow = self.flow.wrapping_add(1);
        }
        self.packet = self.packet.wrapping_add(1);
        let crosses = self.packet % SHARE_OF < self.share;
        if crosses { Ok(packet) } else { cx.drop(packet, WorkDrop::Kept) }
    }
}
