//! Formats the load for people.

use crate::table::{Table, cell, list, rounded};
use serde_json::Value;

/// Columns of cores: the head, the key in the answer, and the digits after the point of a measured
/// figure.
const CORE_COLUMNS: [(&str, &str, Option<usize>); 10] = [
    ("core", "core", None),
    ("cpu", "cpu", None),
    ("load %", "load_percent", Some(1)),
    ("packets/s", "packets_per_second", Some(0)),
    ("burst %", "burst_percent", Some(1)),
    ("empty %", "empty_percent", Some(1)),
    ("ns/packet", "ns_per_packet", Some(1)),
    ("switches", "involuntary_switches", None),
    ("waited %", "waited_percent", Some(1)),
    ("steal %", "steal_percent", Some(1)),
];

/// Formats an answer to `load`.
pub(crate) fn load_text(load: &Value) -> String {
    if list(load).is_empty() {
        return "nothing is known yet: ask again in a second".to_owned();
    }
    let mut cores = Table::new(CORE_COLUMNS.map(|(head, ..)| head));
    let mut places =
        Table::new(["core", "place", "name", "ns/packet", "waiting", "at most", "room"]);
    for core in list(load) {
        cores.row(CORE_COLUMNS.map(|(_, key, digits)| match digits {
            Some(digits) => rounded(&core[key], digits),
            None => cell(&core[key]),
        }));
        let ticks = rounded(&core["tick_ns_per_packet"], 1);
        let none = || "-".to_owned();
        places.row([cell(&core["core"]), "ticks".into(), none(), ticks, none(), none(), none()]);
        for place in list(&core["places"]) {
            let waiting = &place["waiting"];
            places.row([
                cell(&core["core"]),
                cell(&place["place"]),
                cell(&place["name"]),
                rounded(&place["ns_per_packet"], 1),
                cell(&waiting["now"]),
                cell(&waiting["max"]),
                cell(&waiting["capacity"]),
            ]);
        }
    }
    format!("{cores}\n\n{places}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_engine::{CoreLoad, PlaceTime, Waiting};
    use hotloop_load::CoreFigures;
    use serde_json::json;

    #[test]
    fn people_read_the_load() {
        let place = PlaceTime {
            place: "rings".into(),
            name: "group 1".into(),
            ns_per_packet: Some(12.34),
            waiting: Some(Waiting { now: 3, max: 80, capacity: Some(4096) }),
        };
        let load = CoreLoad {
            core: "core 0".into(),
            cpu: Some(2),
            load_percent: Some(41.26),
            packets_per_second: 1234.6,
            places: vec![place],
            ..CoreLoad::default()
        };
        let figures = CoreFigures { load, involuntary_switches: Some(7), ..CoreFigures::default() };
        assert_eq!(
            load_text(&json!([figures])),
            "core    cpu  load %  packets/s  burst %  empty %  ns/packet  switches  waited %  steal %\n\
             core 0    2    41.3       1235        -        -          -         7         -        -\n\n\
             core    place  name     ns/packet  waiting  at most  room\n\
             core 0  ticks  -                -        -        -     -\n\
             core 0  rings  group 1       12.3        3       80  4096"
        );
        assert!(load_text(&json!([])).contains("a second"));
        assert!(!load_text(&json!([1, {"places": [2]}])).is_empty());
    }
}
