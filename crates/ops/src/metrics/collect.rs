//! The metrics of every program.
//!
//! A new metric needs a constant here, an entry in [`METRICS`], and a line in [`collect`] that adds
//! its samples. A program adds its own to the same [`Scrape`].

use super::SCHEMA_VERSION;
use super::{load, process};
use crate::common::program;
use crate::diagnostics::lost_count;
use hotloop_engine::{Control, PlaceSnapshot};
use hotloop_metrics::{Metric, Scrape};
use hotloop_stage::{Device, LinkState};
use std::time::Instant;

const BUILD: Metric = Metric::gauge(
    "hotloop_build_info",
    &["program", "version", "schema", "deployment", "idle"],
    "The running program: its name, hotloop's version, the version of the schema of metrics, its deployment.",
);
const UPTIME: Metric = Metric::gauge(
    "hotloop_uptime_seconds",
    &[],
    "Seconds since the program began to serve metrics.",
);
const MESSAGES_LOST: Metric = Metric::counter(
    "hotloop_messages_lost_total",
    &[],
    "Messages that standard error did not take in time.",
);
const CORE: Metric = Metric::gauge(
    "hotloop_core_info",
    &["core", "cpu"],
    "The CPU that each core is pinned to; empty if it is not pinned.",
);
const RECEIVED: Metric = Metric::counter(
    "hotloop_packets_received_total",
    &["core", "stage"],
    "Packets received from sources.",
);
const SENT: Metric = Metric::counter(
    "hotloop_packets_sent_total",
    &["core", "stage"],
    "Packets that sinks took over.",
);
const CREATED: Metric = Metric::counter(
    "hotloop_packets_created_total",
    &["core", "stage"],
    "Packets created by stages and sources.",
);
const DROPPED: Metric = Metric::counter(
    "hotloop_packets_dropped_total",
    &["core", "stage", "reason"],
    "Packets dropped, by reason.",
);
const CROSSED: Metric = Metric::counter(
    "hotloop_packets_crossed_total",
    &["core", "stage"],
    "Packets handed to another core.",
);
const UNATTRIBUTED: Metric = Metric::counter(
    "hotloop_packets_unattributed_total",
    &["core", "stage"],
    "Packets that a stage lost without a reason: a fault of the program.",
);
const UNCREATED: Metric = Metric::counter(
    "hotloop_packets_uncreated_total",
    &["core", "stage"],
    "Packets that a stage emitted without having had them: a fault of the program.",
);
const HELD: Metric = Metric::gauge(
    "hotloop_packets_held",
    &["core", "stage"],
    "Packets that a stage keeps for later.",
);
const IN_FLIGHT_MAX: Metric = Metric::gauge(
    "hotloop_packets_in_flight_max",
    &[],
    "The most packets that can be inside the engine.",
);
const PLAUSIBLE: Metric = Metric::gauge(
    "hotloop_ledger_plausible",
    &[],
    "1 while the number of packets inside is possible: neither negative nor above the number that fits.",
);
const STAGE_RECEIVED: Metric = Metric::counter(
    "hotloop_stage_packets_received_total",
    &["core", "stage", "place"],
    "Packets that each place of a core took.",
);
const STAGE_EMITTED: Metric = Metric::counter(
    "hotloop_stage_packets_emitted_total",
    &["core", "stage", "place"],
    "Packets that each place of a core emitted.",
);
const STAGE_VALUE: Metric = Metric::gauge(
    "hotloop_stage_value",
    &["core", "stage", "value"],
    "Values that stages count and measure themselves, under their own names.",
);
const PORT_RECEIVED: Metric = Metric::counter(
    "hotloop_port_packets_received_total",
    &["port"],
    "Packets that a device's RX queues handed over, by its own count.",
);
const PORT_SENT: Metric = Metric::counter(
    "hotloop_port_packets_sent_total",
    &["port"],
    "Packets that a device's TX queues took over, by its own count.",
);
const PORT_RECEIVED_BYTES: Metric = Metric::counter(
    "hotloop_port_received_bytes_total",
    &["port"],
    "Bytes of the packets received; absent if the device does not count them.",
);
const PORT_SENT_BYTES: Metric = Metric::counter(
    "hotloop_port_sent_bytes_total",
    &["port"],
    "Bytes of the packets sent; absent if the device does not count them.",
);
const PORT_LOST: Metric = Metric::counter(
    "hotloop_port_packets_lost_total",
    &["port", "reason"],
    "Packets that a device lost; without a sample of imissed if it does not count those.",
);
const PORT_REOPENED: Metric = Metric::counter(
    "hotloop_port_reopened_total",
    &["port"],
    "How often a device was opened again after its interface had gone.",
);
const PORT_UP: Metric = Metric::gauge(
    "hotloop_port_link_up",
    &["port"],
    "1 if packets can pass, 0 if the link is down or its interface has gone; absent if the device does not \
     report it.",
);
const XSTATS_TOTAL: Metric = Metric::counter(
    "hotloop_port_xstats_total",
    &["port", "queue", "xstat"],
    "Figures of a device's driver, under its own names.",
);
const XSTATS: Metric = Metric::gauge(
    "hotloop_port_xstats",
    &["port", "queue", "xstat"],
    "The figures of a device's driver that are not known to be counters, by its own names.",
);
#[cfg(feature = "dpdk")]
const MEMPOOL_MBUFS: Metric =
    Metric::gauge("hotloop_mempool_mbufs", &["mempool"], "The mbufs that a mempool has.");
#[cfg(feature = "dpdk")]
const MEMPOOL_IN_USE: Metric = Metric::gauge(
    "hotloop_mempool_mbufs_in_use",
    &["mempool"],
    "The mbufs of a mempool that are not free.",
);
#[cfg(feature = "dpdk")]
const MEMPOOL_FREE_MIN: Metric = Metric::gauge(
    "hotloop_mempool_mbufs_free_min",
    &["mempool"],
    "The fewest mbufs of a mempool that were free when looked at, ten times a second.",
);
#[cfg(feature = "dpdk")]
const MEMPOOL_FAILED: Metric = Metric::counter(
    "hotloop_mempool_allocations_failed_total",
    &["mempool"],
    "How often an allocation found too few mbufs; what devices found is their rx_nombuf.",
);
#[cfg(feature = "dpdk")]
const MEMPOOL_BYTES: Metric = Metric::gauge(
    "hotloop_mempool_memory_bytes",
    &["mempool", "node"],
    "The memory that a mempool got, and its node.",
);

/// The metrics of every program. Some have no samples in some programs.
pub const METRICS: &[Metric] = &[
    BUILD,
    UPTIME,
    MESSAGES_LOST,
    CORE,
    RECEIVED,
    SENT,
    CREATED,
    DROPPED,
    CROSSED,
    UNATTRIBUTED,
    UNCREATED,
    HELD,
    IN_FLIGHT_MAX,
    PLAUSIBLE,
    STAGE_RECEIVED,
    STAGE_EMITTED,
    STAGE_VALUE,
    PORT_RECEIVED,
    PORT_SENT,
    PORT_RECEIVED_BYTES,
    PORT_SENT_BYTES,
    PORT_LOST,
    PORT_REOPENED,
    PORT_UP,
    XSTATS_TOTAL,
    XSTATS,
    load::LOAD,
    load::POLLS,
    load::EMPTY_POLLS,
    load::POLLED,
    load::POLL_MAX,
    load::TIMED_PACKETS,
    load::TIMED_SECONDS,
    load::WAITING,
    load::WAITING_MAX,
    load::WAITING_ROOM,
    load::SWITCHES,
    load::WAITED,
    load::STEAL,
    process::CPU,
    process::START,
    process::RESIDENT,
    process::VIRTUAL,
    process::OPEN_FILES,
    process::FILES_MAX,
    #[cfg(feature = "dpdk")]
    MEMPOOL_MBUFS,
    #[cfg(feature = "dpdk")]
    MEMPOOL_IN_USE,
    #[cfg(feature = "dpdk")]
    MEMPOOL_FREE_MIN,
    #[cfg(feature = "dpdk")]
    MEMPOOL_FAILED,
    #[cfg(feature = "dpdk")]
    MEMPOOL_BYTES,
];

/// Adds the metrics of every program.
pub fn collect(control: &Control<'_>, since: Instant, scrape: &mut Scrape) {
    let snapshot = control.snapshot();
    let (program, schema, idle) =
        (program(), SCHEMA_VERSION.to_string(), control.idle().to_string());
    let version = env!("CARGO_PKG_VERSION");
    scrape.add(&BUILD, &[&program, version, &schema, &snapshot.deployment, &idle], 1);
    scrape.set_seconds(&UPTIME, &[], since.elapsed().as_secs_f64());
    scrape.add(&MESSAGES_LOST, &[], lost_count());
    scrape.add(&IN_FLIGHT_MAX, &[], snapshot.in_flight_max);
    scrape.add(&PLAUSIBLE, &[], snapshot.is_plausible().into());
    for core in snapshot.places.chunk_by(|one, other| one.core == other.core) {
        let cpu = core[0].cpu.map(|cpu| cpu.to_string());
        scrape.add(&CORE, &[&core[0].core, cpu.as_deref().unwrap_or("")], 1);
    }
    snapshot.places.iter().for_each(|place| add_place(scrape, place));
    load::add(control, scrape);
    process::add(scrape);
    control.devices().iter().for_each(|device| add_port(scrape, device.as_ref()));
    add_mempools(scrape);
}

/// If a stage occurs twice on a core under one name, its counts are added: `named` tells them
/// apart.
fn add_place(scrape: &mut Scrape, place: &PlaceSnapshot) {
    let (counts, kind) = (&place.counts, place.place.as_str());
    let at = [place.core.as_str(), counts.name.as_str()];
    let [core, stage] = at;
    match kind {
        "source" => scrape.add(&RECEIVED, &at, counts.received),
        "sink" => scrape.add(&SENT, &at, counts.emitted),
        "boundary" => scrape.add(&CROSSED, &at, counts.crossed),
        _ => {}
    }
    scrape.add(&STAGE_RECEIVED, &[core, stage, kind], counts.received);
    scrape.add(&STAGE_EMITTED, &[core, stage, kind], counts.emitted);
    scrape.add(&CREATED, &at, counts.created);
    scrape.add(&HELD, &at, counts.held);
    scrape.add(&UNATTRIBUTED, &at, counts.unattributed);
    scrape.add(&UNCREATED, &at, counts.uncreated);
    // Reasons without drops are 0, so that the first drop is a change, too.
    for reason in &counts.reasons {
        let count = counts.dropped.get(*reason).copied().unwrap_or(0);
        scrape.add(&DROPPED, &[core, stage, reason], count);
    }
    for (gauge, value) in &counts.gauges {
        let labels: Vec<_> = gauge.labels().iter().map(|(name, of)| (*name, &**of)).collect();
        scrape.add_labelled(&STAGE_VALUE, &[core, stage, gauge.bare()], &labels, *value);
    }
}

fn add_port(scrape: &mut Scrape, device: &dyn Device) {
    let (name, counters) = (device.name(), device.counters());
    let port = name.as_str();
    scrape.add(&PORT_RECEIVED, &[port], counters.received);
    scrape.add(&PORT_SENT, &[port], counters.sent);
    for (metric, bytes) in
        [(&PORT_RECEIVED_BYTES, counters.received_bytes), (&PORT_SENT_BYTES, counters.sent_bytes)]
    {
        if let Some(bytes) = bytes {
            scrape.add(metric, &[port], bytes);
        }
    }
    let lost = [
        ("imissed", counters.imissed),
        ("rx_nombuf", Some(counters.rx_nombuf)),
        ("rx_unclaimed", Some(counters.rx_unclaimed)),
        ("rx_malformed", Some(counters.rx_malformed)),
        ("tx_failed", Some(counters.tx_failed)),
    ];
    for (reason, count) in lost {
        if let Some(count) = count {
            scrape.add(&PORT_LOST, &[port, reason], count);
        }
    }
    scrape.add(&PORT_REOPENED, &[port], counters.reopened);
    if let Some(state) = device.link_state() {
        scrape.add(&PORT_UP, &[port], (state == LinkState::Up).into());
    }
    for (xstat, figure) in device.xstats() {
        let metric = if is_cumulative(&xstat) { &XSTATS_TOTAL } else { &XSTATS };
        let (queue, xstat) = queue_of(&xstat);
        scrape.add(metric, &[port, queue, &xstat], figure);
    }
}

/// Whether a driver's figure only grows, by its name: drivers name counts after a plural noun, and
/// don't mark other figures.
fn is_cumulative(xstat: &str) -> bool {
    const COUNTED: [&str; 9] = [
        "packets", "bytes", "errors", "dropped", "drops", "discards", "frames", "octets", "missed",
    ];
    xstat.split('_').any(|part| COUNTED.contains(&part))
}

/// The queue of a figure, and the name without it: DPDK writes `rx_q0_packets`.
fn queue_of(xstat: &str) -> (&str, String) {
    for direction in ["rx_", "tx_"] {
        let Some(rest) = xstat.strip_prefix(direction).and_then(|rest| rest.strip_prefix('q'))
        else {
            continue;
        };
        if let Some((queue, name)) = rest.split_once('_')
            && !queue.is_empty()
            && queue.bytes().all(|byte| byte.is_ascii_digit())
        {
            return (queue, format!("{direction}q_{name}"));
        }
    }
    ("", xstat.to_owned())
}

#[cfg(feature = "dpdk")]
fn add_mempools(scrape: &mut Scrape) {
    for (index, figures) in hotloop_load::mempool_figures().into_iter().enumerate() {
        let hotloop_load::MempoolFigures { level, free_min, memory } = figures;
        let (index, node) = (index.to_string(), memory.node.map(|node| node.to_string()));
        scrape.add(&MEMPOOL_MBUFS, &[&index], level.mbuf_count.into());
        scrape.add(&MEMPOOL_IN_USE, &[&index], (level.mbuf_count - level.free_count).into());
        scrape.add(&MEMPOOL_FREE_MIN, &[&index], free_min.into());
        scrape.add(&MEMPOOL_FAILED, &[&index], level.failed_count);
        scrape.add(&MEMPOOL_BYTES, &[&index, node.as_deref().unwrap_or("")], memory.bytes);
    }
}

/// Without DPDK there are no mempools.
#[cfg(not(feature = "dpdk"))]
const fn add_mempools(_: &mut Scrape) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_drivers_are_told_apart_by_their_names() {
        for counter in ["rx_good_packets", "tx_q12_bytes", "rx_missed_errors", "rx_xdp_drops"] {
            assert!(is_cumulative(counter), "{counter}");
        }
        for gauge in ["rx_q0_fill", "temperature", "packetsize"] {
            assert!(!is_cumulative(gauge), "{gauge}");
        }
        assert_eq!(queue_of("rx_q12_packets"), ("12", "rx_q_packets".to_owned()));
        for name in ["rx_good_packets", "rx_q_packets", "rx_qx_packets", "q0_packets", "rx_q0"] {
            assert_eq!(queue_of(name), ("", name.to_owned()));
        }
    }
}
