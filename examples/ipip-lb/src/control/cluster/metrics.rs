//! Metrics of a node and its peers. Reads [`Node`], and changes nothing.

use super::Node;
use hotloop_balancer::services::ServiceTable;
use hotloop_cluster::sync::{PeerState, PeerStatus, Tls};
use hotloop_ops::{Metric, Scrape};

const READY: Metric = Metric::gauge(
    "ipip_lb_cluster_ready",
    &[],
    "1 where this node knows what its peers know, as far as they could be reached.",
);
const MARKED: Metric = Metric::gauge(
    "ipip_lb_cluster_marked",
    &[],
    "1 where all connections that the reference tables would place elsewhere were found.",
);
const REFERENCE: Metric = Metric::gauge(
    "ipip_lb_cluster_reference_table",
    &[],
    "The number of the reference table in use: 0 for the first one, and before the node has one.",
);
const MOVING: Metric = Metric::gauge(
    "ipip_lb_cluster_reference_moving",
    &[],
    "1 while this node goes over to another reference table.",
);
const WAITING: Metric = Metric::gauge(
    "ipip_lb_cluster_waiting",
    &[],
    "1 while connections that this node has lost may be alive: the reference table does not move.",
);
const STALE: Metric = Metric::counter(
    "ipip_lb_cluster_stale_total",
    &[],
    "Claims and ends of peers that counted for less than what this node knew.",
);
const REFUSED: Metric = Metric::counter(
    "ipip_lb_cluster_refused_total",
    &[],
    "Claims of peers that were refused: an unknown backend, or no room in the connection table.",
);
const NOT_AFTER: Metric = Metric::gauge(
    "ipip_lb_cluster_certificate_not_after_timestamp_seconds",
    &[],
    "When the first of the certificates that this node shows its peers ends, in seconds since 1970-01-01.",
);
const IN_SYNC: Metric = Metric::gauge(
    "ipip_lb_peer_in_sync",
    &["peer"],
    "1 where each of the two nodes has entered the other's snapshot, and changes follow.",
);
const CAUGHT_UP: Metric = Metric::gauge(
    "ipip_lb_peer_caught_up",
    &["peer"],
    "1 where the peer has entered all that this node knows.",
);
const LAG: Metric = Metric::gauge(
    "ipip_lb_peer_lag_records",
    &["peer"],
    "Changes that the peer has not entered yet.",
);
const LAG_SECONDS: Metric = Metric::gauge(
    "ipip_lb_peer_lag_seconds",
    &["peer"],
    "For how long the first of these changes has been waiting.",
);
const TO_ENTER: Metric = Metric::gauge(
    "ipip_lb_peer_to_enter_records",
    &["peer"],
    "Changes of the peer that wait for this node to enter them.",
);
const SENT: Metric =
    Metric::counter("ipip_lb_peer_records_sent_total", &["peer"], "Changes sent to the peer.");
const RECEIVED: Metric = Metric::counter(
    "ipip_lb_peer_records_received_total",
    &["peer"],
    "Changes received from the peer.",
);
const SENT_BYTES: Metric = Metric::counter(
    "ipip_lb_peer_sent_bytes_total",
    &["peer"],
    "Bytes of frames sent to the peer, without what TLS, TCP and IP add.",
);
const RECEIVED_BYTES: Metric = Metric::counter(
    "ipip_lb_peer_received_bytes_total",
    &["peer"],
    "Bytes of frames received from the peer.",
);
const SNAPSHOTS_SENT: Metric =
    Metric::counter("ipip_lb_peer_snapshots_sent_total", &["peer"], "Snapshots sent to the peer.");
const SNAPSHOTS_RECEIVED: Metric = Metric::counter(
    "ipip_lb_peer_snapshots_received_total",
    &["peer"],
    "Snapshots received from the peer.",
);
const OVERFLOWS: Metric = Metric::counter(
    "ipip_lb_peer_overflows_total",
    &["peer"],
    "How often the peer needed a new snapshot, as the queue for it was full.",
);

impl Node {
    /// Adds this node's metrics; `table` is the service table in use.
    pub(in crate::control) fn add_metrics(&self, table: &ServiceTable, scrape: &mut Scrape) {
        scrape.add(&READY, &[], self.is_ready.into());
        scrape.add(&MARKED, &[], self.exceptions.is_marked(table).into());
        let number = self.agreement.tables().first().map_or(0, |table| table.number);
        scrape.add(&REFERENCE, &[], number.into());
        scrape.add(&MOVING, &[], (self.agreement.tables().len() > 1).into());
        let is_waiting = self.agreement.standing(self.now_ms()).member.is_waiting;
        scrape.add(&WAITING, &[], is_waiting.into());
        scrape.add(&STALE, &[], self.exceptions.stale_count());
        scrape.add(&REFUSED, &[], self.exceptions.refused_count());
        if let Some(not_after) = self.sync.tls().and_then(Tls::not_after) {
            scrape.add(&NOT_AFTER, &[], not_after);
        }
        self.sync.status().iter().for_each(|peer| add_peer(peer, scrape));
    }
}

fn add_peer(peer: &PeerStatus, scrape: &mut Scrape) {
    let name = &[peer.name.as_str()];
    scrape.add(&IN_SYNC, name, (peer.state == PeerState::InSync).into());
    scrape.add(&CAUGHT_UP, name, peer.is_caught_up.into());
    scrape.add(&LAG, name, peer.lag_records as u64);
    scrape.add_seconds(&LAG_SECONDS, name, peer.lag_ms as f64 / 1000.0);
    scrape.add(&TO_ENTER, name, peer.import_count as u64);
    scrape.add(&SENT, name, peer.counts.sent);
    scrape.add(&RECEIVED, name, peer.counts.received);
    scrape.add(&SENT_BYTES, name, peer.counts.sent_bytes);
    scrape.add(&RECEIVED_BYTES, name, peer.counts.received_bytes);
    scrape.add(&SNAPSHOTS_SENT, name, peer.counts.snapshots_sent);
    scrape.add(&SNAPSHOTS_RECEIVED, name, peer.counts.snapshots_received);
    scrape.add(&OVERFLOWS, name, peer.counts.overflows);
}
