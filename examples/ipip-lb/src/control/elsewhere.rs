//! Connections of drained backends at the other nodes: a backend is empty once no node has any.

use super::cluster::Node;
use super::members::Members;
use super::publisher::Publisher;
use hotloop_balancer::services::TargetName;
use hotloop_cluster::sync::PeerStatus;
use hotloop_cluster::sync::wire::{DRAINS_MAX, Drains};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Interval of questions and answers.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Age of a question before answers count: older ones may be to an earlier question.
const ASKED_MIN: Duration = Duration::from_secs(2);

/// The questions to peers, and their answers.
#[derive(Debug)]
pub(super) struct Elsewhere {
    asked: BTreeSet<u64>,
    /// When the last question came up.
    asked_since: Instant,
    /// The sums of the answers, where all peers in contact have given one.
    answered: HashMap<u64, u64>,
    due: Instant,
}

impl Default for Elsewhere {
    fn default() -> Self {
        let now = Instant::now();
        Self { asked: BTreeSet::new(), asked_since: now, answered: HashMap::new(), due: now }
    }
}

impl Elsewhere {
    /// Takes the backends to ask about, and the peers' answers.
    fn turn(&mut self, asked: BTreeSet<u64>, peers: &[PeerStatus], now: Instant) {
        if !asked.is_subset(&self.asked) {
            self.asked_since = now;
        }
        self.asked = asked;
        self.answered.clear();
        if self.asked.is_empty() || now - self.asked_since < ASKED_MIN {
            return;
        }
        let in_contact = peers.iter().filter(|peer| peer.said.is_some());
        let counts: Vec<HashMap<_, _>> =
            in_contact.map(|peer| peer.drains.counts.iter().copied().collect()).collect();
        let sum = |digest| counts.iter().map(|its| its.get(digest)).sum::<Option<u64>>();
        let sums = self.asked.iter().filter_map(|digest| Some((*digest, sum(digest)?)));
        self.answered = sums.collect();
    }

    /// Number of connections to a drained backend at the peers in contact; `None` before all have
    /// answered.
    pub fn connections(&self, name: &TargetName) -> Option<u64> {
        self.answered.get(&digest_of(&name.service, name.address)).copied()
    }
}

impl Node {
    /// Asks peers about the backends that this node drains until they are empty, and answers peers.
    pub(super) fn follow_drains(&mut self, publisher: &Publisher, members: &Members) {
        let now = Instant::now();
        if now < self.elsewhere.due {
            return;
        }
        self.elsewhere.due = now + LOOK_INTERVAL;
        let until_empty = members.drains.all().filter(|(_, until)| until.is_empty);
        let digest = |name: &TargetName| digest_of(&name.service, name.address);
        let asked: BTreeSet<_> =
            until_empty.map(|(name, _)| digest(name)).take(DRAINS_MAX).collect();
        let peers = self.sync.status();
        let counts = counts(peers.iter().flat_map(|peer| &peer.drains.asked), publisher);
        self.sync.set_drains(Drains { asked: asked.iter().copied().collect(), counts });
        self.elsewhere.turn(asked, &peers, now);
    }
}

/// This node's numbers of connections to backends that peers drain: 0 for unknown ones.
fn counts<'a>(asked: impl Iterator<Item = &'a u64>, publisher: &Publisher) -> Vec<(u64, u64)> {
    let mut counts: HashMap<u64, u64> = asked.map(|digest| (*digest, 0)).collect();
    if !counts.is_empty() {
        let (table, summary) = (&publisher.table, publisher.summary());
        for (service, id, target) in table.used_targets() {
            let digest = digest_of(&table.all()[service as usize].name, target.address());
            if let Some(count) = counts.get_mut(&digest) {
                *count = summary.target(id).connections;
            }
        }
    }
    counts.into_iter().collect()
}

/// A digest of a backend's name (FNV-1a).
fn digest_of(service: &str, address: IpAddr) -> u64 {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let bytes = address.octets().into_iter().chain(service.bytes());
    let fold = |digest: u64, byte: u8| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.fold(0xcbf2_9ce4_8422_2325, fold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_cluster::sync::wire::NodeState;
    use hotloop_cluster::sync::{Local, Peers};

    fn peer(counts: &[(u64, u64)], is_in_contact: bool) -> PeerStatus {
        let local = Local { node: "a".into(), digest: [0; 16] };
        let mut status = Peers::new(local, [("b".into(), String::new())]).status(0).remove(0);
        status.drains.counts = counts.to_vec();
        status.said = is_in_contact.then(NodeState::default);
        status
    }

    #[test]
    fn connections_count_once_all_peers_in_contact_have_answered_the_present_question() {
        let name = |service| TargetName::new(service, [10, 0, 0, 1].into());
        let digest = |service| digest_of(service, [10, 0, 0, 1].into());
        let (web, dns) = (digest("web"), digest("dns"));
        assert_ne!(web, dns);
        let begin = Instant::now();
        let mut elsewhere = Elsewhere::default();
        let mut turn = |asked: &[u64], peers: &[PeerStatus], s| {
            let now = begin + Duration::from_secs(s);
            elsewhere.turn(asked.iter().copied().collect(), peers, now);
            ["web", "dns"].map(|service| elsewhere.connections(&name(service)))
        };
        let answers = [peer(&[(web, 3), (dns, 0)], true), peer(&[(web, 4)], true)];
        assert_eq!(turn(&[web, dns], &answers, 1), [None; 2], "they may be of an earlier question");
        assert_eq!(turn(&[web, dns], &answers, 4), [Some(7), None]);
        assert_eq!(turn(&[dns], &answers, 5), [None; 2]);
        let away = [peer(&[(web, 3)], true), peer(&[(web, 4)], false)];
        assert_eq!(turn(&[dns, web], &away, 6), [None; 2], "asked anew");
        assert_eq!(turn(&[dns, web], &away, 9), [Some(3), None]);
        assert_eq!(turn(&[web], &[], 10), [Some(0), None]);
    }
}
