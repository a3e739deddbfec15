use super::*;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::tcp::flags::ACK;

const TARGET: TargetId = TargetId { slot: 3, generation: 1 };
const OPENING_NS: u64 = 10_000_000_000;

fn at(ms: u64) -> Instant {
    Instant::from_ns(1_000_000_000 + ms * 1_000_000)
}

fn new(protocol: u8, flags: u8) -> Connection {
    Connection::new(TARGET, protocol, flags, at(0))
}

fn tcp(flags: u8) -> Connection {
    new(protocol::TCP, flags)
}

impl Connection {
    fn client(&mut self, flags: u8) {
        self.follow_client(flags, at(0));
    }

    /// The connection's rank at some time, with its last packet at another.
    fn rank_at(&self, last_ms: u64, ms: u64) -> Option<u8> {
        let silent_steps = step(at(ms)) - step(at(last_ms));
        let silent_ns = u64::from(silent_steps.saturating_sub(1)) * STEP_NS;
        self.rank(silent_ns, at(ms), OPENING_NS)
    }
}

const STATES: [State; 5] =
    [State::Opening, State::Established, State::Closing, State::Udp, State::Other];

/// Another node's connection, with this birth.
fn remote(state: State, birth: Birth, now_ms: u64) -> Connection {
    let [client, vip] = ["198.51.100.7:4000", "203.0.113.10:80"].map(|text| text.parse().unwrap());
    let (key, backend) = (FlowKey::new(client, vip, 6).unwrap(), [10, 0, 0, 1].into());
    Connection::remote(TARGET, &Record { key, backend, state, birth, left_ms: 0 }, at(now_ms))
}

/// The number of steps until a time.
fn steps(ms: u64) -> u64 {
    at(ms).as_ns() / STEP_NS
}

#[test]
fn the_first_packet_says_how_a_connection_begins() {
    assert_eq!(tcp(SYN).state(), State::Opening);
    assert_eq!(tcp(ACK).state(), State::Established);
    assert_eq!(tcp(SYN | ACK).state(), State::Established);
    assert_eq!(tcp(RST).state(), State::Closing);
    assert_eq!(new(protocol::UDP, 0).state(), State::Udp);
    assert_eq!(new(47, 0).state(), State::Other);
    // With the longest key, the entry fits a line of the table.
    assert_eq!(size_of::<Connection>(), 16);
}

#[test]
fn a_client_that_goes_on_has_established_its_connection() {
    let mut connection = tcp(SYN);
    connection.client(SYN);
    assert_eq!(connection.state(), State::Opening);
    connection.follow_server(SYN | ACK);
    assert_eq!(connection.state(), State::Opening);
    connection.client(ACK);
    assert_eq!(connection.state(), State::Established);
}

#[test]
fn a_reset_closes_from_either_side_and_so_do_both_goodbyes() {
    let mut reset = tcp(ACK);
    reset.client(RST | ACK);
    assert_eq!(reset.state(), State::Closing);
    let mut reset = tcp(ACK);
    reset.follow_server(RST);
    assert_eq!(reset.state(), State::Closing);

    for client_first in [true, false] {
        let mut closing = tcp(ACK);
        closing.follow_server(ACK);
        if client_first {
            closing.client(FIN | ACK)
        } else {
            closing.follow_server(FIN)
        }
        assert_eq!(closing.state(), State::Established);
        if client_first {
            closing.follow_server(FIN)
        } else {
            closing.client(FIN | ACK)
        }
        assert_eq!(closing.state(), State::Closing);
        closing.client(ACK);
        assert_eq!(closing.state(), State::Closing);
    }
}

#[test]
fn where_the_server_is_not_seen_the_clients_goodbye_is_enough() {
    let mut direct = tcp(ACK);
    direct.client(FIN | ACK);
    assert_eq!(direct.state(), State::Closing);
}

#[test]
fn a_syn_opens_what_was_closing_and_changes_but_the_birth_of_another() {
    for flags in [SYN, ACK] {
        let mut connection = tcp(flags);
        connection.follow_server(ACK);
        connection.share();
        let mut expected = connection;
        connection.follow_client(SYN, at(70_000));
        expected.set_birth(Birth::new(steps(70_000)), at(70_000));
        assert_eq!(connection, expected);
    }
    // Sent again, before any peer knows the connection.
    let mut opening = tcp(SYN);
    let before = opening;
    opening.follow_client(SYN, at(1_000));
    assert_eq!(opening, before);
    let mut closing = tcp(ACK);
    closing.set_exception(true);
    closing.follow_server(FIN);
    closing.client(FIN);
    closing.follow_client(SYN, at(70_000));
    let mut anew = Connection::new(TARGET, protocol::TCP, SYN, at(70_000));
    anew.set_exception(true);
    assert_eq!(closing, anew);
}

#[test]
fn data_after_a_goodbye_is_of_another_connection_of_which_another_node_saw_the_syn() {
    for end in [FIN | ACK, RST, FIN | PSH | ACK] {
        let mut closing = tcp(SYN);
        closing.set_exception(true);
        closing.client(end);
        // The client acknowledges the server's remaining data.
        closing.client(ACK);
        assert_eq!(closing.state(), State::Closing, "{end:#x}");
        let before = closing.birth(at(70_000));
        closing.follow_client(PSH | ACK, at(70_000));
        let mut anew = Connection::new(TARGET, protocol::TCP, ACK, at(70_000));
        anew.set_birth(before.adopted(), at(70_000));
        anew.set_exception(true);
        assert_eq!(closing, anew, "{end:#x}");
    }
}

#[test]
fn a_connection_is_over_when_it_is_closing_or_abandoned() {
    assert!(tcp(RST).is_over(0));
    for connection in [tcp(SYN), tcp(ACK), new(protocol::UDP, 0)] {
        // The least that the table makes of this silence.
        let abandoned_ns = ABANDONED_NS - 2 * STEP_NS;
        assert!(!connection.is_over(abandoned_ns - 1) && connection.is_over(abandoned_ns));
    }
}

#[test]
fn most_packets_change_nothing() {
    let mut several = new(protocol::UDP, 0);
    assert!(!several.is_unmoved_by(0));
    several.client(0);
    for mut connection in [tcp(SYN), tcp(ACK), tcp(RST), several, new(47, 0)] {
        for flags in 0..=u8::MAX {
            let before = connection;
            if before.is_unmoved_by(flags) {
                connection.follow_client(flags, at(70_000));
                assert_eq!(connection, before, "{flags:#x}");
            }
        }
    }
    assert!(tcp(ACK).is_unmoved_by(ACK) && !tcp(ACK).is_unmoved_by(FIN));
    assert!((0..=u8::MAX).all(|flags| several.is_unmoved_by(flags)));
}

#[test]
fn what_is_over_or_proves_nothing_leaves_first_and_exceptions_stay() {
    let answered = |first: u8, answer: u8| {
        let mut connection = tcp(first);
        connection.follow_server(answer);
        connection.client(ACK);
        connection
    };
    let mut pair = tcp(SYN);
    pair.client(ACK);
    let mut several = new(protocol::UDP, 0);
    several.client(0);
    // For each connection: its rank at once, and after 11 s of packets.
    let cases = [
        (tcp(RST), Some(0), Some(0)),
        (answered(ACK, RST), Some(0), Some(0)),
        (tcp(SYN), Some(0), Some(0)),
        (tcp(ACK), Some(0), Some(1)),
        (pair, Some(0), Some(1)),
        (answered(SYN, SYN | ACK), Some(1), Some(1)),
        (answered(ACK, ACK), Some(1), Some(1)),
        (new(protocol::UDP, 0), Some(0), Some(0)),
        (several, Some(1), Some(1)),
    ];
    for (mut connection, early, late) in cases {
        assert_eq!(connection.rank_at(100, 100), early, "{connection:?}");
        assert_eq!(connection.rank_at(11_000, 500_000), late, "{connection:?}");
        // Silence proves nothing.
        assert_eq!(connection.rank_at(9_900, 500_000), early, "{connection:?}");
        connection.set_exception(true);
        let stays = |rank| if rank == Some(1) { None } else { rank };
        let is_udp = connection.state() == State::Udp;
        let early = if is_udp { early } else { stays(early) };
        assert_eq!(connection.rank_at(100, 100), early, "{connection:?}");
        assert_eq!(connection.rank_at(11_000, 500_000), stays(late), "{connection:?}");
    }
}

#[test]
fn a_packet_from_the_client_makes_a_remote_connection_this_nodes_own() {
    let claim = |state| remote(state, Birth::new(40), 60_000);
    for state in STATES {
        let remote = claim(state);
        assert!(remote.is_remote() && remote.is_shared() && remote.state() == state);
        assert_eq!(remote.birth(at(60_000)), Birth::new(40));
        // Every packet changes a remote connection.
        assert!((0..=u8::MAX).all(|flags| !remote.is_unmoved_by(flags)));
        let (mut by_client, mut by_server) = (remote, remote);
        by_client.follow_client(ACK, at(60_000));
        by_server.follow_server(ACK);
        assert!(!by_client.is_remote() && by_server.is_remote());
    }
    let mut own = claim(State::Established);
    own.set_exception(true);
    assert!(!own.is_own_exception());
    own.client(ACK);
    assert!(own.is_own_exception() && own.is_unmoved_by(ACK) && !own.is_unmoved_by(FIN));
}

#[test]
fn births_come_back_as_they_were() {
    let births = [0, 1, 7, 1 << 31, (1 << 33) + 5, 1 << 37].map(Birth::new);
    for birth in births.into_iter().flat_map(|birth| [birth, birth.adopted()]) {
        // The clock may be a little behind.
        for passed_steps in [-3, 0, 1, 1 << 30, 3 << 30] {
            let now = birth.number().saturating_add_signed(passed_steps).saturating_mul(STEP_NS);
            let connection = {
                let mut connection = tcp(ACK);
                connection.set_birth(birth, Instant::from_ns(now));
                connection
            };
            assert_eq!(connection.birth(Instant::from_ns(now)), birth);
        }
    }
    assert_eq!(tcp(ACK).birth(at(0)), Birth::UNKNOWN);
    assert_eq!(new(protocol::UDP, 0).birth(at(0)), Birth::UNKNOWN);
    assert_eq!(tcp(SYN).birth(at(500)), Birth::new(steps(0)));
}

#[test]
fn a_connection_that_begins_in_the_place_of_a_claimed_one_is_later_and_known_to_peers() {
    let before = Birth::new(steps(60_000) + 9);
    let claimed = remote(State::Established, before, 60_000);
    let [mut anew, mut elsewhere, mut by_syn] = [claimed; 3];
    anew.begin_anew(TARGET, protocol::TCP, SYN, at(60_000));
    elsewhere.go_on_with(TARGET, at(60_000));
    by_syn.follow_client(SYN, at(60_000));
    for next in [anew, elsewhere, by_syn] {
        assert_eq!(next.birth(at(60_000)), Birth::new(before.number() + 1));
        assert!(next.is_shared());
    }
    anew.begin_anew(TARGET, protocol::TCP, SYN, at(70_000));
    assert_eq!(anew.birth(at(70_000)), Birth::new(steps(70_000)));
    assert!(anew.state() == State::Opening && !anew.is_remote());
    // Of one that peers don't know, nothing is left.
    let mut own = tcp(ACK);
    own.begin_anew(TARGET, protocol::TCP, SYN, at(70_000));
    assert_eq!(own, Connection::new(TARGET, protocol::TCP, SYN, at(70_000)));
}

#[test]
fn other_nodes_hear_of_it_again_within_a_third_of_its_idle_timeout() {
    const IDLE_NS: u64 = 12_000_000_000;
    for (start_ms, silent_ms) in [(0, 0), (37, 0), (499, 499), (123_456, 7_000)] {
        let mut connection = tcp(ACK);
        let seen_ms = start_ms - silent_ms;
        connection.set_journalled(IDLE_NS, at(seen_ms));
        let is_due = |ms, silent_ms: u64| {
            connection.is_due(IDLE_NS, at(seen_ms + ms - silent_ms), at(seen_ms + ms))
        };
        // Packets keep coming.
        assert!((0..3_000).step_by(10).all(|ms| !is_due(ms, 0)));
        assert!((4_000..100_000).step_by(10).all(|ms| is_due(ms, 0)));
        // The last packet was long before, but the other nodes do not know of it.
        assert!((4_000..12_000).step_by(10).all(|ms| is_due(ms, ms - 1_000)));
        // There was no packet.
        assert!((0..12_000).step_by(10).all(|ms| !is_due(ms, ms)));
    }
    assert!(!tcp(ACK).is_due(0, at(100_000), at(100_000)));
}

#[test]
fn another_backend_has_not_answered_yet() {
    let mut connection = tcp(ACK);
    connection.follow_server(ACK);
    assert_eq!(connection.rank_at(100, 100), Some(1));
    connection.go_on_with(TargetId { slot: 4, ..TARGET }, at(20_000));
    assert_eq!(connection.rank_at(20_100, 20_100), Some(0));
    assert_eq!(connection.rank_at(31_000, 31_000), Some(1));
}
