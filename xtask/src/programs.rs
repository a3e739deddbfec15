//! Runs test programs, two at a time.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::built::Built;
use crate::failure::Failure;
use crate::skips::{self, Skip};

/// Most of the time tests wait, so one program leaves half of two cores idle. More than two would
/// delay tests of what has to happen within seconds.
const AT_ONCE: usize = 2;

/// Runs alone, since how long connections wait is part of what it checks.
const ALONE: &str = "ipip-lb cluster (test)";

/// Takes as long as all others, and so begins first.
const LONGEST: &str = "ipip-lb all (test)";

/// Runs all, shows the output of each when it ends, and returns the tests that were skipped. After
/// one that fails no other begins.
pub fn run(programs: Vec<Built>) -> Result<Vec<Skip>, Failure> {
    let is_there = |name: &&str| programs.iter().any(|program| program.name() == *name);
    if let Some(absent) = [ALONE, LONGEST].into_iter().find(|name| !is_there(name)) {
        return Err(Failure::failed(format!(
            "there is no test program {absent}, which runs first"
        )));
    }
    let (alone, mut others): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| program.name() == ALONE);
    others.sort_by_key(|program| program.name() != LONGEST);
    let mut skips = Vec::new();
    for program in &alone {
        skips.extend(run_one(program)?);
    }
    skips.extend(in_lanes(others.into(), |program: Built| run_one(&program))?);
    Ok(skips)
}

/// Calls `run` with each, in [`AT_ONCE`] threads, and returns everything that it found.
fn in_lanes<T: Send, F: Send>(
    tasks: VecDeque<T>,
    run: impl Fn(T) -> Result<Vec<F>, Failure> + Sync,
) -> Result<Vec<F>, Failure> {
    let left = Mutex::new(tasks);
    let left = || left.lock().unwrap_or_else(PoisonError::into_inner);
    let lane = || {
        let mut all = Vec::new();
        loop {
            // On its own line: the lock is released before the task runs.
            let next = left().pop_front();
            let Some(task) = next else { return Ok(all) };
            all.extend(run(task).inspect_err(|_| left().clear())?);
        }
    };
    let lanes = thread::scope(|scope| {
        [(); AT_ONCE]
            .map(|()| scope.spawn(lane))
            .map(|lane| lane.join().expect("it does not panic"))
    });
    lanes.into_iter().try_fold(Vec::new(), |mut all, found| {
        all.extend(found?);
        Ok(all)
    })
}

fn run_one(program: &Built) -> Result<Vec<Skip>, Failure> {
    let (name, started) = (program.name(), Instant::now());
    println!("running {name}");
    let mut command = Command::new(&program.path);
    // As cargo has it.
    command.current_dir(program.folder()).env("CARGO_MANIFEST_DIR", program.folder());
    let mut shown = String::new();
    let found = skips::run(command.arg("--show-output"), |line| shown += &format!("{line}\n"));
    println!(
        "\n{name}, {:.1} s: {}\n{shown}",
        started.elapsed().as_secs_f64(),
        program.path.display()
    );
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::time::Duration;

    #[test]
    fn after_a_failure_no_other_begins() {
        let (begun, meeting) = (Mutex::new(Vec::new()), Barrier::new(AT_ONCE));
        let run = |task| {
            begun.lock().unwrap().push(task);
            if task == 0 {
                meeting.wait();
                return Err(Failure::failed("0 fails"));
            }
            meeting.wait();
            thread::sleep(Duration::from_millis(200));
            Ok(vec![task])
        };
        let failure = in_lanes(VecDeque::from([0, 1, 2, 3]), run).unwrap_err();
        assert_eq!(failure.to_string(), "0 fails");
        let mut begun = begun.into_inner().unwrap();
        begun.sort_unstable();
        assert_eq!(begun, [0, 1]);
    }

    #[test]
    fn all_run_and_what_they_find_is_kept() {
        let mut found = in_lanes((0..9).collect(), |task| Ok(vec![task, 10 * task])).unwrap();
        found.sort_unstable();
        assert_eq!(found, [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 20, 30, 40, 50, 60, 70, 80]);
    }
}
