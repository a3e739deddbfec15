//! The sections of the screen: a table for each kind of thing in a program.
//!
//! Another section needs a function here and a line in [`SECTIONS`].

use super::rates::{Rates, Row, shown};
use hotloop_ops::Table;
use serde_json::Value;

/// A section, and the key that shows it alone.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub key: char,
    pub name: &'static str,
    pub table: fn(&Rates<'_>) -> Table,
}

/// All sections, in the order of display.
pub const SECTIONS: [Section; 6] = [
    Section { key: 'c', name: "cores", table: cores },
    Section { key: 's', name: "stages", table: stages },
    Section { key: 'r', name: "rings", table: rings },
    Section { key: 'p', name: "ports", table: ports },
    Section { key: 'm', name: "mempools", table: mempools },
    Section { key: 'd', name: "drops", table: drops },
];

fn rates<'a>(row: &'a Row<'_>, keys: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    keys.iter().map(|key| shown(row.rate(key)))
}

fn texts<'a>(row: &'a Row<'_>, keys: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    keys.iter().map(|key| {
        let text = row.text(key);
        if text.is_empty() { "-".to_owned() } else { text }
    })
}

fn cores(all: &Rates<'_>) -> Table {
    let mut table = Table::new(["core", "cpu", "received/s", "crossed/s", "sent/s", "dropped/s"]);
    for core in all.status("cores") {
        let counts = ["received", "crossed", "sent", "dropped"];
        table.row(texts(&core, &["core", "cpu"]).chain(rates(&core, &counts)));
    }
    table
}

fn stages(all: &Rates<'_>) -> Table {
    let mut table = Table::new(["core", "stage", "received/s", "emitted/s", "dropped/s", "held"]);
    for place in all.places() {
        let dropped = shown(place.dropped_rate());
        let counts = rates(&place, &["received", "emitted"]).chain([dropped, place.text("held")]);
        table.row(texts(&place, &["core", "name"]).chain(counts));
    }
    table
}

fn rings(all: &Rates<'_>) -> Table {
    let mut table =
        Table::new(["core", "rings", "taken/s", "handed over/s", "dropped, ring full/s"]);
    for place in all.places() {
        let cells = match place.text("place").as_str() {
            "rings" => [shown(place.rate("received")), String::from("-"), String::from("-")],
            "boundary" => {
                let full = place.dropped().get("ring_full").and_then(|(_, rate)| *rate);
                let full = full.or_else(|| place.dropped_rate().map(|_| 0.0));
                [String::from("-"), shown(place.rate("crossed")), shown(full)]
            }
            _ => continue,
        };
        table.row(texts(&place, &["core", "name"]).chain(cells));
    }
    table
}

fn ports(all: &Rates<'_>) -> Table {
    let heads = ["port", "link", "received/s", "Mbit/s", "sent/s", "Mbit/s", "lost/s"];
    let mut table = Table::new(heads);
    for port in all.status("devices") {
        let megabits = |key: &str| shown(port.rate(key).map(|bytes| bytes * 8.0 / 1e6));
        let lost = ["imissed", "rx_nombuf"].iter().filter_map(|key| port.rate(key));
        let lost = lost.reduce(|sum, rate| sum + rate);
        table.row(texts(&port, &["name", "link"]).chain([
            shown(port.rate("received")),
            megabits("received_bytes"),
            shown(port.rate("sent")),
            megabits("sent_bytes"),
            shown(lost),
        ]));
    }
    table
}

fn mempools(all: &Rates<'_>) -> Table {
    let mut table = Table::new(["mempool", "mbufs", "memory"]);
    for (index, mempool) in all.status("mempools").iter().enumerate() {
        let index = std::iter::once(index.to_string());
        table.row(index.chain(texts(mempool, &["mbufs", "got"])));
    }
    table
}

fn drops(all: &Rates<'_>) -> Table {
    let mut table = Table::new(["stage", "reason", "dropped/s", "dropped"]);
    let mut rows: Vec<(String, &str, u64, Option<f64>)> = Vec::new();
    for place in all.places() {
        let name = place.text("name");
        for (reason, (count, rate)) in place.dropped() {
            let same = rows.iter_mut().find(|row| row.0 == name && row.1 == reason);
            let Some(same) = same else {
                rows.push((name.clone(), reason, count, rate));
                continue;
            };
            same.2 += count;
            same.3 = same.3.zip(rate).map(|(sum, rate)| sum + rate);
        }
    }
    // The reasons with drops right now come first.
    rows.sort_by(|one, other| other.3.unwrap_or(0.0).total_cmp(&one.3.unwrap_or(0.0)));
    for (name, reason, count, rate) in rows {
        table.row([name, reason.to_owned(), shown(rate), count.to_string()]);
    }
    table
}

/// The program's name and state, in two lines.
pub fn summary(all: &Rates<'_>) -> [String; 2] {
    let status = &all.now.status;
    let text = |key: &str| match &status[key] {
        Value::String(text) => text.escape_default().to_string(),
        other => other.to_string(),
    };
    let uptime_s = status["uptime_s"].as_f64().unwrap_or(0.0);
    let row = all.all();
    let [received, created, sent] = ["received", "created", "sent"].map(|key| shown(row.rate(key)));
    let warning = if status["is_plausible"] == false { "  PACKETS ARE MISSING" } else { "" };
    [
        format!(
            "{}, process {}, {uptime_s:.0} s, {}, idle: {}",
            text("program"),
            text("process"),
            text("deployment"),
            text("idle")
        ),
        format!(
            "{received} received/s, {created} created/s, {sent} sent/s, {} dropped/s{warning}",
            shown(row.dropped_rate())
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Sample;
    use serde_json::json;
    use std::time::{Duration, Instant};

    fn samples() -> [Sample; 2] {
        let start = Instant::now();
        [0, 1].map(|second: u64| {
            let many = second * 12_345_678_901;
            let place = |core: &str, place: &str, name: &str| {
                json!({"core": core, "place": place, "name": name, "received": many,
                    "emitted": many, "crossed": many, "held": 0, "dropped": {"ring_full": second * 5}})
            };
            Sample {
                at: start + Duration::from_secs(second),
                status: json!({"program": "nf\u{1b}[2J", "process": 7, "uptime_s": second, "idle": "spin",
                    "deployment": "pipeline, 1 + 1 cores", "is_plausible": true,
                    "cores": [{"core": "group 0 core 0", "cpu": 10, "received": many,
                        "crossed": many, "sent": many, "dropped": many}],
                    "devices": [{"name": "0000:01:00.0", "link": "up", "received": many, "sent": many,
                        "received_bytes": many * 100, "sent_bytes": null, "imissed": second * 7,
                        "rx_nombuf": 0}],
                    "mempools": [{"mbufs": 8191, "got": "20 KiB on 4 KiB pages, node 0"}]}),
                counters: json!({"received": many, "created": 0, "sent": many, "dropped": {},
                    "places": [place("group 0 core 0", "boundary", "shard_by"),
                        place("group 1 core 0", "rings", "group 1"),
                        place("group 1 core 0", "sink", "sink")]}),
            }
        })
    }

    #[test]
    fn every_table_fits_80_columns_at_more_than_ten_billion_packets_a_second() {
        let [before, now] = samples();
        let rates = Rates::new(&now, Some(&before));
        for Section { name, table, .. } in SECTIONS {
            let text = table(&rates).to_string();
            assert!(text.lines().count() > 1, "{name}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{name}:\n{text}");
        }
        let text = rings(&rates).to_string();
        assert!(text.contains("shard_by            -    12345678901"), "{text}");
        assert_eq!(drops(&rates).to_string().lines().count(), 4);
        let [what, passed] = summary(&rates);
        assert!(what.starts_with("nf\\u{1b}[2J, process 7, 1 s, pipeline, 1 + 1 cores"), "{what}");
        assert!(passed.starts_with("12345678901 received/s, 0 created/s"), "{passed}");
    }

    #[test]
    fn another_programs_answer_is_no_reason_to_panic() {
        for answer in [json!(null), json!({"cores": [1], "places": [{}], "devices": [[]]})] {
            let now = Sample { at: Instant::now(), status: answer.clone(), counters: answer };
            let rates = Rates::new(&now, None);
            SECTIONS.iter().for_each(|section| drop((section.table)(&rates).to_string()));
            summary(&rates);
        }
    }
}
