//! Control's readings of each place while cores run.

use crate::common::{DEPLOYMENTS, Hold, Parcel, World, core_name, watched, whole};
use hotloop_engine::{Chain, Deployment, Engine, PlaceCounts, PlaceSnapshot, Snapshot, source};
use hotloop_stage::{Counter, Cx, Error, Gauge, NoDrops, Stage, Verdict, drop_reasons};
use std::sync::Arc;
use std::thread;

drop_reasons! { enum OddDrop { Odd = "odd", Never = "never" } }

/// Drops packets of odd numbers.
struct Even;

impl Stage<Parcel> for Even {
    type Out = Parcel;
    type Drop = OddDrop;

    fn packet(&mut self, cx: &mut Cx<'_, OddDrop>, parcel: Parcel) -> Verdict<Parcel> {
        if parcel.sequence % 2 == 1 { cx.drop(parcel, OddDrop::Odd) } else { Ok(parcel) }
    }
}

/// Each place in a line: its core, its kind, its name.
fn places(snapshot: &Snapshot) -> Vec<String> {
    let line =
        |of: &PlaceSnapshot| format!("{}, {}: {} {}", of.core, of.group, of.place, of.counts.name);
    snapshot.places.iter().map(line).collect()
}

/// The places of the graph below.
fn expected_places(deployment: Deployment) -> Vec<String> {
    let front = ["0: source source", "0: stage Even", "0: boundary shard_by"];
    let back = ["1: rings group 1", "1: stage Hold", "1: sink sink"];
    let lines = |group, places: &[&str]| -> Vec<String> {
        let of_core = |index| {
            let core = core_name(deployment, (group, index));
            places.iter().map(move |place| format!("{core}, {place}"))
        };
        (0..deployment.cores_in(group)).flat_map(of_core).collect()
    };
    if deployment.is_run_to_completion() {
        return lines(0, &[front, back].concat());
    }
    [lines(0, &front), lines(1, &back)].concat()
}

/// The sum of a count over all places of a kind.
fn sum(snapshot: &Snapshot, place: &str, count: fn(&PlaceCounts) -> u64) -> u64 {
    let of_kind = snapshot.places.iter().filter(|of| of.place == place);
    of_kind.map(|of| count(&of.counts)).sum()
}

#[test]
fn a_run_at_rest_is_seen_as_its_report_sees_it() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, 1000)))
            .stage(|_| Even)
            .shard_by(|parcel| parcel.key)
            .burst_stage(|_| Hold::of(10))
            .sink(|core| world.tx_ok(core));
        let plan = Engine::plan(graph, deployment).unwrap();
        let mut rest = None;
        let report = whole(watched(|| {
            plan.run(|control| {
                let held = 10 * deployment.cores_in(1) as u64;
                let snapshot = loop {
                    let snapshot = control.snapshot();
                    let left = snapshot.sent + snapshot.dropped_sum();
                    if snapshot.held == held && left + held == 1000 * deployment.cores_in(0) as u64
                    {
                        break snapshot;
                    }
                    thread::yield_now();
                };
                rest = Some(snapshot);
            })
        }));
        let snapshot = rest.unwrap();
        assert_eq!(snapshot.deployment, report.deployment);
        assert_eq!((snapshot.received, snapshot.created), (report.received, 0));
        assert_eq!(snapshot.sent + snapshot.held, report.sent);
        assert_eq!(snapshot.dropped, report.dropped);
        assert_eq!(snapshot.dropped.keys().collect::<Vec<_>>(), ["odd"]);

        assert_eq!(places(&snapshot), expected_places(deployment));
        let sunk = sum(&snapshot, "sink", |counts| counts.emitted);
        assert_eq!(sunk, snapshot.sent);
        assert_eq!(sum(&snapshot, "stage", |counts| counts.held), snapshot.held);

        let json: serde_json::Value = serde_json::from_str(&snapshot.to_json()).unwrap();
        assert_eq!(json["dropped"]["odd"], report.dropped["odd"]);
        let first = &json["places"][0];
        assert_eq!((&first["place"], &first["name"]), (&"source".into(), &"source".into()));
        assert_eq!((&first["index"], &first["received"]), (&0.into(), &1000.into()));
    }
}

#[test]
fn a_run_at_work_is_read_without_counting_back() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, u64::MAX)))
            .stage(|_| Even)
            .shard_by(|parcel| parcel.key)
            .burst_stage(|_| Hold::of(10))
            .sink(|core| world.tx_ok(core));
        let plan = Engine::plan(graph, deployment).unwrap();
        whole(watched(|| {
            plan.run(|control| {
                let mut last = control.snapshot();
                while last.sent < 5_000 {
                    let now = control.snapshot();
                    assert!(now.received >= last.received && now.sent >= last.sent);
                    assert!(now.dropped_sum() >= last.dropped_sum());
                    // Sinks are read first, sources last.
                    assert!(now.sent <= now.received, "{now:?}");
                    last = now;
                    thread::yield_now();
                }
            })
        }));
    }
}

/// Counts the keys above a million, and keeps the highest.
#[derive(Default)]
struct Keys {
    large: Arc<Counter>,
    highest: Arc<Counter>,
}

impl Stage<Parcel> for Keys {
    type Out = Parcel;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, parcel: Parcel) -> Verdict<Parcel> {
        self.large.add(u64::from(parcel.key > 1_000_000));
        self.highest.set(self.highest.count().max(u64::from(parcel.key)));
        Ok(parcel)
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![
            Gauge::new("large", &self.large),
            Gauge::new("highest", &self.highest),
            Gauge::new("of", &self.large).label("size", "large"),
        ]
    }
}

#[test]
fn the_counters_of_a_stage_are_summed_under_its_name() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, 1000)))
            .shard_by(|parcel| parcel.key)
            .stage(|_| Keys::default())
            .named("keys")
            .sink(|core| world.tx_ok(core));
        let plan = Engine::plan(graph, deployment).unwrap();
        let mut seen = None;
        let report = whole(watched(|| {
            plan.run(|control| {
                control.wait_until_finished();
                seen = Some(control.snapshot());
            })
        }));
        let large =
            (0..1000).filter(|&number| crate::common::mix(number) > 1_000_000).count() as u64;
        let keys = report.stages.iter().find(|stage| stage.name == "keys").unwrap();
        assert_eq!(keys.gauges["large"], large * deployment.cores_in(0) as u64, "{report}");
        assert_eq!(keys.gauges[r#"of{size="large"}"#], keys.gauges["large"], "{report}");
        let json = serde_json::to_value(keys).unwrap();
        assert_eq!(json["gauges"][r#"of{size="large"}"#], keys.gauges["large"], "{json}");
        assert!(report.to_string().contains("highest"), "{report}");
        let places = seen.unwrap().places;
        let of_keys = places.iter().filter(|place| place.counts.name == "keys");
        assert_eq!(of_keys.clone().count(), deployment.cores_in(1));
        assert!(of_keys.clone().all(|place| place.counts.gauges.contains_key("highest")));
        assert!(
            places
                .iter()
                .all(|place| place.counts.gauges.is_empty() == (place.counts.name != "keys"))
        );
    }
}
