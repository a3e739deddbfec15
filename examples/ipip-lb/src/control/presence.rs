//! The owner of this node's presence: the announced VIPs, the departure, and the handover to a
//! program that takes over.
//!
//! It reads the configuration, the table in use and the
//! [`ClusterLink`](super::cluster_link::ClusterLink). No VIP is announced before the workers have
//! the table in use, and peers and store permit it.

use super::departure::Leave;
use super::handover::Handover;
use super::publisher::Publisher;
use crate::announce::ReadyVips;
use crate::next_hops::KernelHopWatch;
use crate::until::left_s;
use hotloop_kernel::VipAnnouncer;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

/// The VIPs, and the two ways of giving them up.
#[derive(Debug, Default)]
pub struct Presence {
    pub announcer: Option<VipAnnouncer>,
    ready: ReadyVips,
    /// The departure, if an operator has requested it.
    pub leave: Option<Leave>,
    pub handover: Handover,
}

impl Presence {
    /// Announces the VIPs that are ready and may be announced, and withdraws the rest.
    pub fn turn(
        &mut self,
        publisher: &Publisher,
        next_hops: Option<&KernelHopWatch>,
        may_announce: bool,
    ) {
        if let Some(announcer) = &mut self.announcer {
            let hops = next_hops.map(KernelHopWatch::hops);
            let states = self.ready.states(&publisher.config, &publisher.table, hops);
            states.into_iter().for_each(|states| announcer.set_states(states));
            announcer.turn(may_announce);
        }
    }

    /// VIPs that are ready but not announced yet because they were withdrawn, with the remaining
    /// seconds, if this balancer announces VIPs.
    pub fn held(&self) -> Option<BTreeMap<IpAddr, u64>> {
        let announcer = self.announcer.as_ref()?;
        let now = Instant::now();
        Some(announcer.held(now).map(|(vip, left)| (vip, left_s(now + left, now))).collect())
    }
}
