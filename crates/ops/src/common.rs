//! Answers the commands of every program, and formats the answers for people.

use crate::diagnostics::lost_count;
use crate::links;
use crate::request::Request;
use crate::table::{Table, cell, list, rounded};
use hotloop_engine::{Control, PlaceSnapshot, Snapshot};
use hotloop_load::load_figures;
use serde_json::{Value, json};
use std::time::Instant;

/// The answer to a command of every program. `None` for any other command.
pub fn answer(control: &Control<'_>, since: Instant, request: &Request) -> Option<Value> {
    match request.command.as_str() {
        "status" => Some(status(control, since)),
        "counters" => Some(json!(control.snapshot())),
        "load" => Some(json!(load_figures())),
        "xstats" => Some(links::xstats(control)),
        _ => None,
    }
}

/// The program, its start, and its counters: the answer to `status`, for programs that add to it.
pub fn status(control: &Control<'_>, since: Instant) -> Value {
    let snapshot = control.snapshot();
    // The packets inside are known between bounds: at least 0, and at most the number that fits.
    let in_flight = snapshot.in_flight();
    let in_flight_max = snapshot.in_flight_max.cast_signed();
    json!({
        "program": program(),
        "process": std::process::id(),
        "uptime_s": since.elapsed().as_secs_f64(),
        "deployment": snapshot.deployment,
        "idle": control.idle().to_string(),
        "received": snapshot.received,
        "created": snapshot.created,
        "sent": snapshot.sent,
        "dropped": snapshot.dropped_sum(),
        "in_flight_least": (*in_flight.start()).max(0),
        "in_flight_most": (*in_flight.end()).min(in_flight_max),
        "in_flight_max": in_flight_max,
        "is_plausible": snapshot.is_plausible(),
        "messages_lost": lost_count(),
        "cores": cores(&snapshot),
        "devices": links::to_json(control),
        "mempools": mempools(),
    })
}

/// Each mempool: its fill level, and the memory that it got.
#[cfg(feature = "dpdk")]
fn mempools() -> Vec<Value> {
    let mempool = |figures: hotloop_load::MempoolFigures| {
        let hotloop_load::MempoolFigures { level, free_min, memory } = figures;
        json!({
            "mbufs": level.mbuf_count,
            "in_use": level.mbuf_count - level.free_count,
            "free_least": free_min,
            "failed": level.failed_count,
            "bytes": memory.bytes,
            "page_bytes": memory.page_bytes,
            "node": memory.node,
            "got": memory.to_string(),
        })
    };
    hotloop_load::mempool_figures().into_iter().map(mempool).collect()
}

/// Without DPDK there are no mempools.
#[cfg(not(feature = "dpdk"))]
const fn mempools() -> Vec<Value> {
    Vec::new()
}

/// The program's name, from its command line.
pub fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Each core: its load, and the packets that it received, handed to other cores, sent and dropped.
fn cores(snapshot: &Snapshot) -> Vec<Value> {
    let same = |one: &PlaceSnapshot, other: &PlaceSnapshot| one.core == other.core;
    let figures = load_figures();
    let load_percent = |name: &str| {
        let core = figures.iter().find(|core| core.load.core == name);
        core.and_then(|core| core.load.load_percent)
    };
    let core = |places: &[PlaceSnapshot]| {
        let first = &places[0];
        let sinks = places.iter().filter(|place| place.place == "sink");
        let sent: u64 = sinks.map(|place| place.counts.emitted).sum();
        let crossed: u64 = places.iter().map(|place| place.counts.crossed).sum();
        let dropped: u64 = places.iter().flat_map(|place| place.counts.dropped.values()).sum();
        json!({
            "core": first.core,
            "cpu": first.cpu,
            "load_percent": load_percent(&first.core),
            "received": first.counts.received,
            "crossed": crossed,
            "sent": sent,
            "dropped": dropped,
        })
    };
    snapshot.places.chunk_by(same).map(core).collect()
}

/// Formats an answer to `status`.
pub fn status_text(status: &Value) -> String {
    let cell = |key: &str| cell(&status[key]);
    let uptime_s = status["uptime_s"].as_f64().unwrap_or(0.0);
    let (program, process, deployment) = (cell("program"), cell("process"), cell("deployment"));
    let idle = cell("idle");
    let mut counts = Table::new(["received", "created", "sent", "dropped", "inside", "at most"]);
    let inside = format!("{} to {}", cell("in_flight_least"), cell("in_flight_most"));
    counts.row([
        cell("received"),
        cell("created"),
        cell("sent"),
        cell("dropped"),
        inside,
        cell("in_flight_max"),
    ]);
    let heads = ["core", "cpu", "load %"];
    let figures = ["received", "crossed", "sent", "dropped"];
    let mut cores = Table::new(heads.into_iter().chain(figures));
    for core in list(&status["cores"]) {
        let load = rounded(&core["load_percent"], 1);
        cores.row(cells(core, &heads[..2]).into_iter().chain([load]).chain(cells(core, &figures)));
    }
    let figures = ["received", "received_bytes", "sent", "sent_bytes"];
    let heads = ["device", "link"].into_iter().chain(figures).chain(["imissed", "rx_nombuf"]);
    let mut devices = Table::new(heads);
    for device in list(&status["devices"]) {
        // Loss that a device does not count is not 0.
        let imissed =
            device["imissed"].as_u64().map_or("unknown".into(), |count| count.to_string());
        let row = cells(device, &["name", "link"]).into_iter().chain(cells(device, &figures));
        devices.row(row.chain([imissed]).chain(cells(device, &["rx_nombuf"])));
    }
    let devices = if devices.is_empty() { String::new() } else { format!("\n\n{devices}") };
    let mempools = list(&status["mempools"]).iter().map(|mempool| {
        let cells = cells(mempool, &["mbufs", "got", "in_use", "free_least", "failed"]);
        let [mbufs, got, in_use, free_least, failed] = &cells[..] else { return String::new() };
        format!(
            "\nmemory: mempool of {mbufs} mbufs: {got}\n  {in_use} in use, {free_least} free at least, \
             found empty {failed} times"
        )
    });
    let mempools: String = mempools.collect();
    let mempools = if mempools.is_empty() { mempools } else { format!("\n{mempools}") };
    let warning = match status["is_plausible"].as_bool() {
        Some(false) => "\n\nWARNING: packets are missing: more are inside than there can be",
        _ => "",
    };
    let lost = match status["messages_lost"].as_u64() {
        Some(0) | None => String::new(),
        Some(count) => format!("\n\n{count} messages were lost: standard error did not take them"),
    };
    format!(
        "{program}, process {process}, running for {uptime_s:.1} s, {deployment}, idle: {idle}\n\n{counts}\n\n\
         {cores}{devices}{mempools}{warning}{lost}"
    )
}

/// Formats an answer to `counters`.
pub fn counters_text(counters: &Value) -> String {
    let heads =
        ["core", "cpu", "place", "name", "received", "emitted", "created", "held", "dropped"];
    let mut places = Table::new(heads);
    for place in list(&counters["places"]) {
        let dropped = place["dropped"].as_object();
        let dropped: u64 = dropped.into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum();
        places.row(cells(place, &heads[..8]).into_iter().chain([dropped.to_string()]));
    }
    let mut dropped = Table::new(["dropped as", "packets"]);
    for (reason, count) in counters["dropped"].as_object().into_iter().flatten() {
        dropped.row([reason.clone(), cell(count)]);
    }
    let mut gauges = Table::new(["core", "name", "gauge", "value"]);
    for place in list(&counters["places"]) {
        for (gauge, value) in place["gauges"].as_object().into_iter().flatten() {
            let of = cells(place, &["core", "name"]).into_iter();
            gauges.row(of.chain([gauge.clone(), cell(value)]));
        }
    }
    let others = [dropped, gauges].into_iter().filter(|table| !table.is_empty());
    others.fold(places.to_string(), |text, table| format!("{text}\n\n{table}"))
}

/// Formats an answer to `xstats`.
pub fn xstats_text(devices: &Value) -> String {
    let mut table = Table::new(["device", "figure", "value"]);
    for device in list(devices) {
        for (name, figure) in device["xstats"].as_object().into_iter().flatten() {
            table.row([cell(&device["name"]), name.clone(), cell(figure)]);
        }
    }
    table.to_string()
}

fn cells(value: &Value, keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| cell(&value[*key])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_a_status() {
        let core = json!({"core": "core 1", "cpu": null, "load_percent": 41.26, "received": 9, "crossed": 4, "sent": 7,
            "dropped": 2});
        let mut status = json!({"program": "nf", "process": 7, "uptime_s": 1.25,
            "deployment": "pipeline", "idle": "spin", "received": 9, "created": 0, "sent": 7, "dropped": 2,
            "in_flight_least": 0, "in_flight_most": 3, "in_flight_max": 96, "is_plausible": true,
            "cores": [core]});
        assert_eq!(
            status_text(&status),
            "nf, process 7, running for 1.2 s, pipeline, idle: spin\n\n\
             received  created  sent  dropped  inside  at most\n       \
             9        0     7        2  0 to 3       96\n\n\
             core    cpu  load %  received  crossed  sent  dropped\n\
             core 1    -    41.3         9        4     7        2"
        );
        let figures = |name: &str, link: Value, imissed: Value| {
            json!({"name": name, "link": link, "received": 7, "received_bytes": 420, "sent": 0,
                "sent_bytes": null, "imissed": imissed, "rx_nombuf": 1})
        };
        status["devices"] = json!([
            figures("net_ring0", Value::Null, json!(2)),
            figures("b", json!("up"), Value::Null)
        ]);
        let devices = "\n\n\
            device     link  received  received_bytes  sent  sent_bytes  imissed  rx_nombuf\n\
            net_ring0  -            7             420     0           -  2                1\n\
            b          up           7             420     0           -  unknown          1";
        assert!(status_text(&status).ends_with(devices), "{}", status_text(&status));
        status["mempools"] = json!([
            {"mbufs": 8191, "got": "20 KiB on 4 KiB pages", "in_use": 91, "free_least": 7,
                "failed": 3},
            {"mbufs": 7, "got": "4 KiB on 2 MiB pages, node 0"}
        ]);
        let mempools = "\n\n\
            memory: mempool of 8191 mbufs: 20 KiB on 4 KiB pages\n  \
            91 in use, 7 free at least, found empty 3 times\n\
            memory: mempool of 7 mbufs: 4 KiB on 2 MiB pages, node 0\n  \
            - in use, - free at least, found empty - times";
        assert!(status_text(&status).ends_with(mempools), "{}", status_text(&status));
        status["is_plausible"] = json!(false);
        assert!(status_text(&status).ends_with("more are inside than there can be"));
        status["messages_lost"] = json!(7);
        let text = status_text(&status);
        assert!(text.ends_with("\n\n7 messages were lost: standard error did not take them"));
    }

    #[test]
    fn people_read_counters() {
        let place = json!({"core": "core 0", "cpu": 3, "place": "stage",
            "name": "Even", "received": 10, "emitted": 4, "created": 0, "held": 1,
            "dropped": {"odd": 3, "late": 2}, "gauges": {"flows": 7}});
        let mut counters = json!({"places": [place], "dropped": {"odd": 3, "late": 2}});
        assert_eq!(
            counters_text(&counters),
            "core    cpu  place  name  received  emitted  created  held  dropped\n\
             core 0    3  stage  Even        10        4        0     1        5\n\n\
             dropped as  packets\n\
             late              2\n\
             odd               3\n\n\
             core    name  gauge  value\n\
             core 0  Even  flows      7"
        );
        counters["dropped"] = json!({});
        counters["places"][0]["gauges"] = json!({});
        assert_eq!(counters_text(&counters).lines().count(), 2);
    }

    #[test]
    fn another_programs_answer_is_no_reason_to_panic() {
        for answer in [json!(null), json!({"cores": [1], "places": [{}]}), json!([1, "x"])] {
            assert!(!status_text(&answer).is_empty() && !counters_text(&answer).is_empty());
            assert!(!xstats_text(&answer).is_empty());
        }
    }
}
