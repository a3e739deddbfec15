//! The owner of whether clients come here: the VIPs that are announced, the way out, and the handover to a program that
//! takes over.
//!
//! It knows the configuration, the table in use and the [`ClusterLink`](super::cluster_link::ClusterLink), and changes none of
//! them. No VIP is announced before the workers have the table in use and peers and store allow it.

use super::departure::Leave;
use super::handover::Handover;
use super::publisher::Publisher;
use crate::announce::Announcer;
use crate::next_hops::NextHopWatch;

/// What keeps clients coming here, and ends that.
#[derive(Debug, Default)]
pub struct Presence {
    pub announcer: Option<Announcer>,
    /// The way out, if an operator has the balancer leave.
    pub leave: Option<Leave>,
    pub handover: Handover,
}

impl Presence {
    /// Announces what is ready and may be announced, and withdraws the rest.
    pub fn turn(
        &mut self,
        publisher: &Publisher,
        next_hops: Option<&NextHopWatch>,
        may_announce: bool,
    ) {
        if let Some(announcer) = &mut self.announcer {
            let hops = next_hops.map(NextHopWatch::hops);
            announcer.follow(&publisher.config, (&publisher.table, hops), may_announce);
        }
    }
}
