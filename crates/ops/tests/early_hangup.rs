//! SIGHUP before and during a run. This is a program of its own, because the first loop that runs
//! takes the signal.

use hotloop_engine::{Chain, Control, Deployment, Engine, source};
use hotloop_ops::{Operation, Steer, expect_hangup};
use hotloop_stage::{Burst, Carries, Sink, Source};
use signal_hook::{consts::SIGHUP, low_level::raise};
use std::convert::Infallible;

struct Nothing;

impl Carries for Nothing {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// A source that yields nothing, and a sink.
struct Silence;

impl Source for Silence {
    type Item = Nothing;

    fn poll(&mut self, _: &mut Burst<Nothing>) -> usize {
        0
    }
}

impl Sink for Silence {
    type Item = Nothing;

    fn send(&mut self, _: &mut Burst<Nothing>) -> usize {
        0
    }
}

/// The turns after which each hangup came.
#[derive(Default)]
struct Reloading {
    turn_count: u64,
    hangups: Vec<u64>,
}

impl Steer for Reloading {
    fn turn(&mut self, _: &Control<'_>) {
        self.turn_count += 1;
        if self.turn_count == 5 {
            raise(SIGHUP).unwrap();
        }
    }

    fn is_over(&mut self) -> bool {
        self.turn_count == 10
    }

    fn hangup(&mut self) {
        self.hangups.push(self.turn_count);
    }
}

#[test]
fn an_early_hangup_is_kept_for_the_run_and_a_later_one_comes_too() {
    expect_hangup().unwrap();
    raise(SIGHUP).unwrap();
    raise(SIGHUP).unwrap();
    let silence = |_: &_| Ok::<_, Infallible>(Silence);
    let plan = Engine::plan(source(silence).sink(silence), Deployment::run_to_completion(1));
    let mut reloading = Reloading::default();
    plan.unwrap().run(|control| Operation::default().run(control, &mut reloading)).unwrap();
    assert_eq!(reloading.hangups, [1, 5]);
}
