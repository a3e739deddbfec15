//! The owner of this node's presence: the announced VIPs, the departure, and the handover to a
//! program that takes over.
//!
//! It reads the configuration, the table in use and the
//! [`ClusterLink`](super::cluster_link::ClusterLink). No VIP is announced before the workers have
//! the table in use, and peers and store permit it.

use super::departure::Leave;
use super::handover::Handover;
use super::publisher::Publisher;
use crate::announce::Announcer;
use crate::next_hops::NextHopWatch;

/// The VIPs, and the two ways of giving them up.
#[derive(Debug, Default)]
pub struct Presence {
    pub announcer: Option<Announcer>,
    /// The departure, if an operator has requested it.
    pub leave: Option<Leave>,
    pub handover: Handover,
}

impl Presence {
    /// Announces the VIPs that are ready and may be announced, and withdraws the rest.
    pub fn turn(
        &mut self,
        publisher: &Publisher,
        next_hops: Option<&NextHopWatch>,
        may_announce: bool,
    ) {
        if let Some(announcer) = &mut self.announcer {
            let hops = next_hops.map(NextHopWatch::hops);
            announcer.follow(&publisher.config, &publisher.table, hops, may_announce);
        }
    }
}
