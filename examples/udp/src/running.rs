//! A run of either program, up to its summary.

use crate::arguments::Common;
use crate::output::{Output, Totals};
use hotloop::engine::{Deployment, Graph, Placement, Report};
use hotloop::prelude::*;
use hotloop_ops::{CONTROL, Failure, Metrics, Steer};
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
    let result = hotloop_ops::run(plan, CONTROL, common.run.watching(), |running| {
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

/// Prints `lines`, which takes the time since the last ones, once a second, until the reader of the
/// output is gone.
pub struct Lines<'a, F> {
    output: &'a Output,
    looked: Instant,
    due: Instant,
    lines: F,
}

impl<'a, F: FnMut(Duration) -> Vec<String>> Lines<'a, F> {
    /// Lines since `started`.
    #[must_use]
    pub fn new(output: &'a Output, started: Instant, lines: F) -> Self {
        Self { output, looked: started, due: started + INTERVAL, lines }
    }
}

impl<F: FnMut(Duration) -> Vec<String>> Steer for Lines<'_, F> {
    fn turn(&mut self, _: &Control<'_>) {
        let now = Instant::now();
        if now >= self.due {
            self.due += INTERVAL;
            self.output.lines(&(self.lines)(now - self.looked));
            self.looked = now;
        }
    }

    fn is_over(&mut self) -> bool {
        self.output.is_unread()
    }
}
