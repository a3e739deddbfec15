//! The report as JSON.

use hotloop::prelude::*;
use hotloop_tests::planted::forwarder;
use hotloop_tests::{alone, device, eal};
use serde_json::Value;

#[test]
fn the_json_report_has_what_was_promised() {
    let report = alone(|| {
        let [lan, wan] = [0, 1].map(|_| Port::open(eal(), &device("net_null", "")).unwrap());
        let plan = Engine::plan(forwarder(&lan, &wan, None), Deployment::pipeline([1, 2])).unwrap();
        plan.run(|control| {
            while control.snapshot().sent < 10_000 {
                std::thread::yield_now();
            }
        })
        .unwrap_or_else(|error| panic!("{error}"))
    });
    let json: Value = serde_json::from_str(&report.to_json()).unwrap();
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {json}"));
    for (key, expected) in [
        ("received", report.received),
        ("sent", report.sent),
        ("created", 0),
        ("in_flight", 0),
        ("crossed", report.crossed),
        ("unattributed", 0),
        ("uncreated", 0),
    ] {
        assert_eq!(number(&json[key]), expected, "{key} in {json}");
    }
    assert!(report.crossed > 0);
    assert_eq!((&json["balanced"], &json["pools_whole"]), (&Value::Bool(true), &Value::Bool(true)));
    let dropped = json["dropped"].as_object().expect("an object by reason");
    let dropped_sum: u64 = dropped.values().map(number).sum();
    assert!(number(&dropped["even"]) > 0);
    assert_eq!(report.received, report.sent + dropped_sum);
    assert_eq!(number(&json["nic_loss"]["imissed"]), 0);
    assert_eq!(number(&json["nic_loss"]["rx_nombuf"]), 0);

    let stages = json["stages"].as_array().expect("a list");
    let names: Vec<_> = stages.iter().map(|stage| stage["name"].as_str().unwrap()).collect();
    let boundary = ["shard_by", "group 1"];
    assert_eq!(names[..3], ["source", "Number", "PlantedStage"]);
    assert_eq!((&names[3..5], &names[5..]), (&boundary[..], &["PlantedBurstStage", "sink"][..]));
    assert_eq!(number(&stages[1]["dropped"]["even"]), number(&dropped["even"]));

    let cores = json["cores"].as_array().expect("a list");
    let mut lcores: Vec<_> = cores.iter().map(|core| number(&core["lcore"])).collect();
    lcores.sort_unstable();
    lcores.dedup();
    assert_eq!((cores.len(), lcores.len()), (3, 3));
    assert_eq!(number(&cores[0]["received"]), report.received);
    let sent: u64 = cores[1..].iter().map(|core| number(&core["sent"])).sum();
    assert_eq!(sent, report.sent);
}
