//! A run of either program, up to its summary.

use crate::arguments::Common;
use crate::output::{Output, Totals};
use hotloop::engine::{Deployment, Graph, Placement, Report};
use hotloop::prelude::*;
use hotloop_ops::{CONTROL, Failure, Metrics, Operation, Request};
use std::time::{Duration, Instant};

/// Interval between lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time for which devices stay up after the last packet: a virtual device loses the packets that it has not
/// passed to its peer when it stops.
pub const LINGER: Duration = Duration::from_millis(100);

/// Runs a graph with `control` on the calling thread, and prints the summary of `totals`. `control`
/// returns how long datagrams were counted, or why the run failed although all packets are accounted
/// for.
///
/// # Errors
/// The reason why the run did not start, or was not whole, or `control`'s.
pub fn run(
    common: &Common,
    nf: impl Graph,
    deployment: Deployment,
    placement: Option<Placement>,
    control: impl FnOnce(&Control<'_>, &Output, Option<&mut Metrics>) -> Result<Duration, Failure>,
    totals: impl FnOnce(&Report, Duration) -> Totals,
) -> Result<(), Failure> {
    let output = Output::start(common.run.report)?;
    let mut plan = common.run.plan(nf, deployment)?;
    if let Some(placement) = placement {
        plan = plan.placement(placement).map_err(|error| Failure::Run(error.to_string()))?;
    }
    let mut metrics = common.run.metrics.bind()?;
    let mut counted = Ok(Duration::ZERO);
    let result = hotloop_ops::run_watched(plan, CONTROL, common.run.watching(), |running| {
        counted = control(running, &output, metrics.as_mut());
    });
    let report = match &result {
        Ok(report) => Some(report),
        Err(error) => error.report(),
    };
    let duration = counted.as_ref().copied().unwrap_or_default();
    let printed = report.map_or(Ok(()), |report| output.summary(report, &totals(report, duration)));
    result?;
    counted?;
    Ok(printed?)
}

/// Prints `lines`, which takes the time since the last ones, once a second, and answers clients, until
/// a signal comes, the time is up, the input ends, or the reader of the output is gone.
pub fn print_until_the_end(
    mut operation: Operation<'_>,
    output: &Output,
    started: Instant,
    mut lines: impl FnMut(Duration) -> Vec<String>,
) {
    let (mut looked, mut due) = (started, started + INTERVAL);
    loop {
        let waited = operation.turn(&mut Request::unknown);
        let now = Instant::now();
        if now >= due {
            due += INTERVAL;
            output.lines(&lines(now - looked));
            looked = now;
        }
        if waited.is_some() || output.is_unread() {
            return;
        }
    }
}
