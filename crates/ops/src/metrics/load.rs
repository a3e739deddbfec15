//! Metrics of the load: the cores' work, the packets that wait for them, and other threads on their
//! CPUs.
//!
//! All but [`LOAD`] are sums since the program began, or current values. The time per packet and
//! the fill of bursts follow from two of them, over any interval.

use hotloop_engine::{Control, LoadCounts, PlaceLoad};
use hotloop_load::{Scheduling, load_figures};
use hotloop_metrics::{Metric, Scrape};

pub const LOAD: Metric = Metric::gauge(
    "hotloop_core_load_ratio",
    &["core"],
    "How far each core is from its limit, by its last second: 0 if no packets come, 1 if no more could; absent \
     while that is not known.",
);
pub const POLLS: Metric =
    Metric::counter("hotloop_core_polls_total", &["core"], "Turns of each core: each polls once.");
pub const EMPTY_POLLS: Metric = Metric::counter(
    "hotloop_core_empty_polls_total",
    &["core"],
    "Turns of each core in which no packet came.",
);
pub const POLLED: Metric = Metric::counter(
    "hotloop_core_polled_packets_total",
    &["core"],
    "Packets that came to each core, from its source and through rings.",
);
pub const POLL_MAX: Metric = Metric::gauge(
    "hotloop_core_poll_packets_max",
    &["core"],
    "The most packets that can come in a turn.",
);
pub const TIMED_PACKETS: Metric = Metric::counter(
    "hotloop_core_timed_packets_total",
    &["core"],
    "Packets of the turns that are timed place by place.",
);
pub const TIMED_SECONDS: Metric = Metric::counter(
    "hotloop_stage_timed_seconds_total",
    &["core", "stage", "place"],
    "Time of each place in the turns that are timed place by place; place ticks is the work that stages do with \
     or without packets.",
);
pub const WAITING: Metric = Metric::gauge(
    "hotloop_packets_waiting",
    &["core", "stage"],
    "Packets that wait for a core in RX queues, if their driver reports them, and in rings, in the last sample.",
);
pub const WAITING_MAX: Metric = Metric::gauge(
    "hotloop_packets_waiting_max",
    &["core", "stage"],
    "The most packets that have waited there when looked at.",
);
pub const WAITING_ROOM: Metric = Metric::gauge(
    "hotloop_packets_waiting_capacity",
    &["core", "stage"],
    "The most packets that find room there; absent if unknown.",
);
pub const SWITCHES: Metric = Metric::counter(
    "hotloop_core_involuntary_switches_total",
    &["core"],
    "How often the kernel took the CPU from each core's thread.",
);
pub const WAITED: Metric = Metric::counter(
    "hotloop_core_waited_seconds_total",
    &["core"],
    "The time in which each core's thread could have run and waited for its CPU.",
);
pub const STEAL: Metric = Metric::counter(
    "hotloop_core_steal_seconds_total",
    &["core"],
    "CPU time that the hypervisor gave to others, of the CPU that each core is pinned to.",
);

/// The label for the times of all stages' ticks, instead of a stage and a kind of place.
const TICKS: &str = "ticks";

/// Adds the metrics of each core.
pub fn add(control: &Control<'_>, scrape: &mut Scrape) {
    for figures in load_figures() {
        if let Some(percent) = figures.load.load_percent {
            scrape.set_ratio(&LOAD, &[&figures.load.core], percent / 100.0);
        }
    }
    let scheduling = Scheduling::read();
    for core in control.load() {
        add_core(scrape, &core);
        let at = [core.core.as_str()];
        let (thread, steal_s) = scheduling.of(&core);
        if let Some(count) = thread.involuntary_switches {
            scrape.add(&SWITCHES, &at, count);
        }
        if let Some(waited_ns) = thread.waited_ns {
            scrape.add_seconds(&WAITED, &at, seconds(waited_ns));
        }
        if let Some(steal_s) = steal_s {
            scrape.add_seconds(&STEAL, &at, steal_s);
        }
    }
}

fn add_core(scrape: &mut Scrape, core: &LoadCounts) {
    let at = [core.core.as_str()];
    scrape.add(&POLLS, &at, core.turns);
    scrape.add(&EMPTY_POLLS, &at, core.empty_turns);
    scrape.add(&POLLED, &at, core.packets);
    scrape.add(&POLL_MAX, &at, core.packets_per_turn_max);
    scrape.add(&TIMED_PACKETS, &at, core.timed.by_place_packets);
    let ticks = [core.core.as_str(), TICKS, TICKS];
    scrape.add_seconds(&TIMED_SECONDS, &ticks, seconds(core.timed.ticks_ns));
    core.places.iter().for_each(|place| add_place(scrape, &core.core, place));
}

fn add_place(scrape: &mut Scrape, core: &str, place: &PlaceLoad) {
    let at = [core, place.name.as_str()];
    scrape.add_seconds(&TIMED_SECONDS, &[at[0], at[1], &place.place], seconds(place.ns));
    if let Some(waiting) = place.waiting {
        scrape.add(&WAITING, &at, waiting.now);
        scrape.add(&WAITING_MAX, &at, waiting.max);
        if let Some(capacity) = waiting.capacity {
            scrape.add(&WAITING_ROOM, &at, capacity);
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "nanoseconds of years, as a figure that is measured")]
const fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
