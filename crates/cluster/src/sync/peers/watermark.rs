//! Progress of peers: how much they have entered of everything offered up to some moment, however
//! much is offered later.

use super::{Peer, Peers};

/// A mark after everything offered up to some moment: for each peer, the number of its session, and
/// the number of items.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Watermark(Vec<Option<(u64, u64)>>);

/// The names of peers that have not entered everything up to a mark.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Entered {
    /// Peers without a connection.
    pub away: Vec<String>,
    /// Peers that have not entered everything yet.
    pub waiting: Vec<String>,
}

impl Peers {
    /// The mark after everything offered up to now, for each peer.
    pub fn watermark(&self) -> Watermark {
        let of = |peer: &Peer| {
            peer.session.as_ref().map(|session| (peer.session_number, session.queued_count()))
        };
        Watermark(self.peers.iter().map(of).collect())
    }

    /// Compares peers with a mark: returns those that have not entered everything, and those that
    /// are away.
    pub fn entered(&self, watermark: &Watermark) -> Entered {
        let mut entered = Entered::default();
        for (peer, offered) in self.peers.iter().zip(&watermark.0) {
            // Another session begins with a snapshot of everything.
            let same = offered.filter(|(number, _)| *number == peer.session_number);
            match &peer.session {
                None => entered.away.push(peer.name.clone()),
                Some(session) if session.has_entered(same.map_or(0, |(_, count)| count)) => {}
                Some(_) => entered.waiting.push(peer.name.clone()),
            }
        }
        entered
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::peers::sending::{QUEUE_MAX, Session};
    use hotloop::packet::flow_key::FlowKey;
    use hotloop_agreement::Birth;
    use hotloop_balancer::connection::State;
    use hotloop_balancer::exceptions::Record;

    fn claim() -> Record {
        let client = "198.51.100.7:4000".parse().unwrap();
        let key = FlowKey::new(client, "203.0.113.10:80".parse().unwrap(), 6).unwrap();
        let (backend, birth) = ([10, 0, 0, 4].into(), Birth::UNKNOWN);
        Record { key, backend, state: State::Established, birth, left_ms: 1_000 }
    }

    /// A session that has reported the node's state: such frames have no numbers.
    fn session() -> Session {
        let mut session = Session::new(0, QUEUE_MAX);
        assert!(session.next_frame(&mut Vec::new(), 0, 0));
        session
    }

    /// Sends all waiting items, and returns the number of the last frame.
    fn send(session: &mut Session, sequence: &mut u64) -> u64 {
        while session.next_frame(&mut Vec::new(), 0, 0) {
            *sequence += 1;
        }
        *sequence
    }

    #[test]
    fn what_was_offered_until_then_counts_and_nothing_after_it() {
        let (mut session, mut sequence) = (session(), 0);
        assert!(!session.has_entered(0), "its snapshot is due");
        session.begin_snapshot(0);
        assert!(session.end_snapshot(0) && !session.has_entered(0));
        let snapshot = send(&mut session, &mut sequence);
        assert!(session.offer(claim(), 0));
        let mark = session.queued_count();
        let marked = send(&mut session, &mut sequence);
        assert!(session.offer(claim(), 0));
        send(&mut session, &mut sequence);
        session.acknowledge(snapshot).unwrap();
        assert!(session.has_entered(0) && !session.has_entered(mark));
        session.acknowledge(marked).unwrap();
        assert!(session.has_entered(mark) && !session.is_caught_up());
    }

    #[test]
    fn of_what_an_overflow_removed_the_next_snapshot_counts() {
        let (mut session, mut sequence) = (session(), 0);
        session.begin_snapshot(0);
        assert!(session.end_snapshot(0));
        let snapshot = send(&mut session, &mut sequence);
        session.acknowledge(snapshot).unwrap();
        while session.offer(claim(), 0) {
            assert!(session.queued_count() <= QUEUE_MAX as u64 + 10, "it never overflows");
        }
        let mark = session.queued_count();
        assert!(!session.has_entered(mark));
        session.begin_snapshot(0);
        let begun = send(&mut session, &mut sequence);
        session.acknowledge(begun).unwrap();
        assert!(!session.has_entered(mark), "the snapshot has just begun");
        assert!(session.end_snapshot(0));
        let ended = send(&mut session, &mut sequence);
        session.acknowledge(ended).unwrap();
        assert!(session.has_entered(mark));
    }
}
