//! SIGINT under load: the run drains and balances. In its own program, because the signal stays
//! noted as long as the process lives.

mod common;

use common::{DEPLOYMENTS, World, watched, whole};
use hotloop_engine::{Chain, Engine, Waited, source};
use hotloop_stage::Error;
use signal_hook::{consts::SIGINT, low_level::raise};
use std::time::Duration;

#[test]
fn a_signal_drains_the_run() {
    for (round, deployment) in DEPLOYMENTS.into_iter().enumerate() {
        let world = World::new();
        let graph = source(|core| {
            let mut rx = world.rx(core, u64::MAX);
            rx.lossless = false;
            Ok::<_, Error>(rx)
        })
        .shard_by(|parcel| parcel.key)
        .sink(|core| world.tx_ok(core));
        let plan = Engine::plan(graph, deployment).unwrap().ring_capacity(32).unwrap();
        let report = whole(watched(|| {
            plan.run(|control| {
                while control.snapshot().sent < 5000 {
                    std::thread::yield_now();
                }
                if round == 0 {
                    // Before the first wait for a signal, one would end the process.
                    let waited = control.wait_for_signal_or(Duration::ZERO);
                    assert_eq!(waited, Waited::Elapsed);
                    raise(SIGINT).unwrap();
                }
                assert_eq!(control.wait_for_signal(), Waited::Signal);
            })
        }));
        assert!(report.sent >= 5000, "{report}");
    }
}
