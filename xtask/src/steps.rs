//! A list of steps that run one after the other until one fails.

use std::time::Instant;

use crate::failure::Failure;
use crate::setup;
use crate::skips::Skip;
use crate::workspace::Workspace;

/// The result of a step that did not fail.
pub enum Outcome {
    /// The step passed, apart from tests that cannot run here, or not completely.
    Passed(Vec<Skip>),
    /// The step cannot run here, with the reason.
    Skipped(String),
}

impl Outcome {
    /// The outcome of a step without skipped tests: for `map`.
    pub fn passed((): ()) -> Self {
        Self::Passed(Vec::new())
    }

    /// The outcome of a step that cannot run here.
    pub fn skipped(why: impl Into<String>) -> Result<Self, Failure> {
        Ok(Self::Skipped(why.into()))
    }
}

/// A step of `cargo xtask check` or `cargo xtask test`.
pub struct Step {
    /// The name that `--only` takes.
    pub name: &'static str,
    /// A description of the step.
    pub what: &'static str,
    /// Whether the step runs only if `--only` names it.
    pub on_request: bool,
    /// Runs the step.
    pub run: fn(&Workspace) -> Result<Outcome, Failure>,
}

impl Step {
    /// A step that runs unless `--only` names others.
    pub const fn new(
        name: &'static str,
        what: &'static str,
        run: fn(&Workspace) -> Result<Outcome, Failure>,
    ) -> Self {
        Self { name, what, on_request: false, run }
    }
}

/// Sets up, then runs every step, or only those in `only`. The first failure ends it.
pub fn run(workspace: &Workspace, steps: &[Step], only: &[String]) -> Result<(), Failure> {
    if let Some(unknown) = only.iter().find(|name| steps.iter().all(|step| step.name != **name)) {
        let names: Vec<_> = steps.iter().map(|step| step.name).collect();
        let names = names.join(", ");
        return Err(Failure::refused(format!("no step `{unknown}`; the steps are {names}")));
    }
    let is_wanted = |step: &&Step| match only {
        [] => !step.on_request,
        names => names.iter().any(|name| name == step.name),
    };
    setup::ensure(&[])?;
    let started = Instant::now();
    let (mut skipped, mut skipped_tests) = (Vec::new(), Vec::new());
    for Step { name, what, run, .. } in steps.iter().filter(is_wanted) {
        println!("\n== {name}: {what}");
        let step_started = Instant::now();
        let outcome = run(workspace)
            .map_err(|failure| Failure::failed(format!("the step `{name}` failed: {failure}")))?;
        match outcome {
            Outcome::Passed(skips) => {
                println!("-- {name}: passed in {:.1} s", step_started.elapsed().as_secs_f64());
                skipped_tests.extend(skips);
            }
            Outcome::Skipped(why) => {
                println!("-- {name}: skipped: {why}");
                skipped.push(*name);
            }
        }
    }
    println!("\nAll passed in {} s.", started.elapsed().as_secs());
    for Skip { test, why } in &skipped_tests {
        println!("skipped test: {test}: {why}");
    }
    if !skipped.is_empty() {
        println!("Skipped, with the reason above: {}", skipped.join(", "));
    }
    Ok(())
}
