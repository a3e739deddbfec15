//! Engines that are measured: stepped by hand, or on CPUs of their own.

use hotloop::engine::{Assembly, Control, Deployment, Engine, Graph, Placement, Plan, Topology};
use std::path::Path;
use std::time::{Duration, Instant};

/// A graph on one core that is stepped by hand. Its plan lives as long as the process.
///
/// # Errors
/// If the graph can't be assembled.
pub fn assembled<'a>(graph: impl Graph + 'a) -> hotloop::Result<Assembly<'a>> {
    let plan: &Plan<_> =
        Box::leak(Box::new(Engine::plan(graph, Deployment::run_to_completion(1))?));
    plan.assemble()
}

/// A plan with its cores on these CPUs.
///
/// # Errors
/// If the graph does not fit the deployment, or the CPUs don't.
pub fn on_cpus<G: Graph>(
    graph: G,
    deployment: Deployment,
    cpus: &[usize],
) -> hotloop::Result<Plan<G>> {
    let placement = Placement::explicit(&Topology::read(Path::new("/")), cpus)?;
    Ok(Engine::plan(graph, deployment)?.placement(placement)?)
}

/// The rate of `count` per nanosecond, measured for `window` after a `warm_up`.
pub fn per_ns(
    control: &Control<'_>,
    warm_up: Duration,
    window: Duration,
    count: impl Fn(&Control<'_>) -> u64,
) -> f64 {
    control.wait_for(warm_up);
    let (start, before) = (Instant::now(), count(control));
    control.wait_for(window);
    let counted = count(control) - before;
    counted as f64 / start.elapsed().as_nanos() as f64
}
