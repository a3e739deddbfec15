//! A signal that comes before the control thread waits for one. This is a program of its own,
//! because the signal stays noted as long as the process lives.

use hotloop_engine::{Chain, Deployment, Engine, Waited, source};
use hotloop_ops::{CONTROL, Operation, Watching, run};
use hotloop_stage::{Burst, Carries, Sink, Source};
use signal_hook::{consts::SIGTERM, low_level::raise};
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

#[test]
fn a_signal_that_comes_before_the_first_wait_ends_the_run_and_not_the_process() {
    let silence = |_: &_| Ok::<_, Infallible>(Silence);
    let plan = Engine::plan(source(silence).sink(silence), Deployment::run_to_completion(1));
    let report = run(plan.unwrap(), CONTROL, Watching::default(), |control| {
        raise(SIGTERM).unwrap();
        assert_eq!(Operation::default().run(control, &mut ()), Waited::Signal);
    });
    assert!(report.unwrap().balanced);
}
