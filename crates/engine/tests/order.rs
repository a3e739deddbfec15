//! Packets of one key stay in order, and on one worker.

use crate::common::{DEPLOYMENTS, Parcel, Seen, World, mix, run, whole};
use hotloop_engine::{Chain, Deployment, Shard, source};
use hotloop_stage::{Error, each};
use std::collections::BTreeMap;

const COUNT: u64 = 20_000;

/// Runs with a key, and returns the packets sent, in the order of sending on each core.
fn sent<I: Into<Shard>>(deployment: Deployment, key: impl Fn(&Parcel) -> I + Sync) -> Vec<Seen> {
    let world = World::new();
    let graph = source(|core| {
        let mut rx = world.rx(core, COUNT);
        // Four packets of a key in a row, so that a burst has several of each.
        rx.key = |number| mix(number / 4 % 1000);
        Ok::<_, Error>(rx)
    })
    .stage(|_| each(|parcel: Parcel| parcel))
    .shard_by(key)
    .stage(|_| each(|parcel: Parcel| parcel))
    .sink(|core| world.tx_ok(core));
    let report = whole(run(graph, deployment));
    assert_eq!(report.sent, COUNT * deployment.cores_in(0) as u64);
    let seen = world.seen.lock().unwrap();
    seen.clone()
}

#[test]
fn each_key_is_on_one_worker_and_in_order() {
    for deployment in DEPLOYMENTS {
        let mut workers = BTreeMap::new();
        let mut last = BTreeMap::new();
        for one in sent(deployment, |parcel| parcel.key) {
            let worker = *workers.entry(one.key).or_insert(one.core);
            assert_eq!(worker, one.core, "one worker for a key in {deployment}");
            assert_eq!(worker, Shard::Hash(one.key).worker(deployment.cores_in(1)));
            let before = last.insert((one.key, one.sequence >> 32), one.sequence);
            assert!(before.is_none_or(|before| before < one.sequence), "order in {deployment}");
        }
        assert_eq!(workers.len(), 1000, "all keys were seen");
    }
}

#[test]
fn two_workers_get_about_half_of_a_thousand_keys_each() {
    for deployment in [Deployment::run_to_completion(2), Deployment::pipeline([1, 2])] {
        let seen = sent(deployment, |parcel| parcel.key);
        let first = seen.iter().filter(|one| one.core == 0).count() * 100 / seen.len();
        assert!((40..=60).contains(&first), "{first} % on the first worker in {deployment}");
    }
}

#[test]
fn a_worker_can_be_named() {
    for deployment in DEPLOYMENTS {
        let workers = deployment.cores_in(1);
        let seen = sent(deployment, |parcel| Shard::Worker(parcel.key as usize));
        assert!(seen.iter().all(|one| one.core == one.key as usize % workers), "{deployment}");
    }
}
