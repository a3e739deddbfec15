//! Messages on dropped packets that deserve more than a count.

use hotloop::packet::ethernet::HEADER_BYTES;
use hotloop::stage::Instant;
use hotloop_balancer::counts::WorkerCounts;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Interval between two messages of a kind.
const MESSAGE_INTERVAL_NS: u64 = 10_000_000_000;

/// The reports of a run so far.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// Number of reported tunnel packets from unknown sources, by worker.
    tunnels: Vec<u64>,
    /// The time of that report; `None` before the first one.
    tunnels_at: Option<Instant>,
    /// Ports whose devices cut frames.
    cut_ports: BTreeSet<u16>,
}

impl Dropped {
    /// Logs the workers' new counts: at most one message of a kind in [`MESSAGE_INTERVAL_NS`],
    /// unless it `is_end` of the run, and for each port one warning that its device cuts frames.
    pub(crate) fn report(&mut self, workers: &[WorkerCounts], now: Instant, is_end: bool) {
        if let Some(message) = self.tunnels(workers, now, is_end) {
            tracing::warn!("{message}");
        }
        for message in self.cuts(workers) {
            tracing::warn!("{message}");
        }
    }

    fn tunnels(&mut self, workers: &[WorkerCounts], now: Instant, is_end: bool) -> Option<String> {
        if !is_end && !is_due(self.tunnels_at, now) {
            return None;
        }
        self.tunnels.resize(workers.len(), 0);
        let (mut new_count, mut last) = (0, None::<IpAddr>);
        for (worker, reported) in workers.iter().zip(&mut self.tunnels) {
            let Some((count, source)) = worker.unknown_tunnel_sources() else { continue };
            if count > *reported {
                (new_count, last) = (new_count + count - *reported, Some(source));
                *reported = count;
            }
        }
        let (last, before) = (last?, self.tunnels_at.replace(now));
        let packets = if new_count == 1 { "packet" } else { "packets" };
        Some(format!(
            "{new_count} tunnel {packets} dropped since {}, the last one from {last}: that is no backend's \
             address, nor in balancer.tunnel_peers",
            since(before)
        ))
    }

    fn cuts(&mut self, workers: &[WorkerCounts]) -> Vec<String> {
        let cuts = workers.iter().filter_map(WorkerCounts::last_cut_frame);
        let new = cuts.filter(|(port, _)| self.cut_ports.insert(*port));
        let message = new.map(|(port, bytes)| {
            format!(
                "port {port} gets packets that the kernel has put together, and cuts them to {bytes} bytes: \
                 dropped as truncated; `ethtool -K IFACE gro off lro off`, and where IPv4 fragments or an \
                 MTU above {} come, take net_af_xdp or net_pcap",
                bytes - HEADER_BYTES as u16
            )
        });
        message.collect()
    }
}

/// Whether a message may be logged, given the time of the previous one.
fn is_due(before: Option<Instant>, now: Instant) -> bool {
    before.is_none_or(|before| now.ns_since(before) >= MESSAGE_INTERVAL_NS)
}

/// The beginning of the time that a message covers, given the time of the previous one.
const fn since(before: Option<Instant>) -> &'static str {
    if before.is_some() { "the last such message" } else { "the start" }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));
    const OTHER: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    fn workers() -> Vec<WorkerCounts> {
        (0..2).map(|_| WorkerCounts::new(0)).collect()
    }

    fn note(worker: &WorkerCounts, source: IpAddr, count: usize) {
        (0..count).for_each(|_| worker.note_unknown_tunnel_source(source));
    }

    #[test]
    fn unknown_tunnel_sources_are_reported_at_most_once_in_ten_seconds_and_in_the_end() {
        let (workers, mut dropped) = (workers(), Dropped::default());
        let mut reported = |at_s: u64, is_end| {
            dropped.tunnels(&workers, Instant::from_ns(at_s * 1_000_000_000), is_end)
        };
        const WHY: &str = "that is no backend's address, nor in balancer.tunnel_peers";
        assert_eq!(reported(1, false), None);
        note(&workers[0], ONE, 1);
        let first = "1 tunnel packet dropped since the start, the last one from 10.0.0.9";
        assert_eq!(reported(2, false), Some(format!("{first}: {WHY}")));
        note(&workers[0], ONE, 6);
        note(&workers[1], OTHER, 1);
        assert_eq!(reported(11, false), None);
        let later = "7 tunnel packets dropped since the last such message, the last one from ::1";
        assert_eq!(reported(12, false), Some(format!("{later}: {WHY}")));
        assert_eq!(reported(60, false), None);
        note(&workers[0], OTHER, 1);
        assert!(reported(60, false).is_some());
        note(&workers[0], ONE, 2);
        assert_eq!(reported(61, false), None);
        assert!(reported(0, true).unwrap().starts_with("2 tunnel packets dropped since the last"));
        assert_eq!(reported(0, true), None);
    }

    #[test]
    fn each_port_whose_device_cuts_frames_is_reported_once() {
        let (workers, mut dropped) = (workers(), Dropped::default());
        assert!(dropped.cuts(&workers).is_empty());
        workers[0].note_cut_frame(7, 1982);
        workers[1].note_cut_frame(9, 2014);
        let reported = dropped.cuts(&workers);
        assert!(
            reported[0].starts_with("port 7 ") && reported[0].contains("an MTU above 1968"),
            "{reported:?}"
        );
        assert!(
            reported.len() == 2 && reported[1].contains("cuts them to 2014 bytes"),
            "{reported:?}"
        );
        workers[1].note_cut_frame(7, 1982);
        assert!(dropped.cuts(&workers).is_empty());
    }
}
