//! Frames as bytes, and bytes that are not frames.

use hotloop::packet::flow_key::FlowKey;
use hotloop::testing::Rng;
use hotloop_balancer::connection::State;
use hotloop_balancer::exceptions::{Change, MOVES, Record};
use hotloop_cluster::sync::wire::{
    FRAME_BYTES_MAX, Frame, GREETING_BYTES_MAX, Gathered, Hello, Malformed, Message, NodeState,
    VERSION, decode,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};

fn key() -> impl Strategy<Value = FlowKey> {
    let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>()).prop_map(|it| (IpAddr::from(it.0), it.1.into()));
    let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>()).prop_map(|it| (it.0.into(), it.1.into()));
    (prop_oneof![v4, v6], any::<(u16, u16, u8)>()).prop_map(
        |((from, to), (source, port, protocol))| {
            let (from, to) = (SocketAddr::new(from, source), SocketAddr::new(to, port));
            FlowKey::new(from, to, protocol).unwrap()
        },
    )
}

fn record() -> impl Strategy<Value = Record> {
    let states =
        [State::Opening, State::Established, State::Closing, State::Udp, State::Other].to_vec();
    let state = prop::sample::select(states);
    (key(), any::<IpAddr>(), state, any::<(u32, u32)>(), 0..MOVES).prop_map(
        |(key, backend, state, (age_ms, left_ms), moves)| Record {
            key,
            backend,
            state,
            age_ms,
            left_ms,
            moves,
            wins_ties: false,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![record().prop_map(Change::Claim), key().prop_map(Change::End)]
}

fn encoded(epoch: u64, sequence: u64, message: Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame { epoch, sequence, message }.encode(&mut bytes);
    bytes
}

fn gathered(changes: &[Change]) -> Gathered {
    let mut gathered = Gathered::default();
    changes.iter().for_each(|change| gathered.push(change));
    gathered
}

/// Whether any prefix of the frame waits for more, and the whole is read as `message`.
fn comes_back(bytes: &[u8], (epoch, sequence): (u64, u64), message: &Message<'_>) {
    for cut in [0, 3, 4, 20, bytes.len() - 1] {
        assert_eq!(decode(&bytes[..cut.min(bytes.len() - 1)], FRAME_BYTES_MAX), Ok(None));
    }
    let (frame, frame_bytes) = decode(bytes, FRAME_BYTES_MAX).unwrap().unwrap();
    assert_eq!((frame.epoch, frame.sequence, frame_bytes), (epoch, sequence, bytes.len()));
    assert_eq!(frame.message, *message);
}

proptest! {
    #[test]
    fn changes_come_back_as_they_were(
        changes in vec(change(), 0..200),
        numbers in any::<(u64, u64)>(),
    ) {
        let gathered = gathered(&changes);
        let message = Message::Changes(gathered.changes());
        let bytes = encoded(numbers.0, numbers.1, message.clone());
        comes_back(&bytes, numbers, &message);
        prop_assert_eq!(gathered.changes().iter().collect::<Vec<_>>(), changes);
    }

    #[test]
    fn relayed_claims_come_back_as_they_were(
        records in vec(record(), 0..100),
        owner in "[a-z0-9-]{1,63}",
        incarnation in any::<u64>(),
    ) {
        let changes: Vec<_> = records.into_iter().map(Change::Claim).collect();
        let gathered = gathered(&changes);
        let claims = gathered.changes();
        let message = Message::Relayed { owner: &owner, incarnation, claims };
        comes_back(&encoded(1, 2, message.clone()), (1, 2), &message);
    }

    #[test]
    fn greetings_come_back_as_they_were(
        node in "[a-z0-9-]{1,63}",
        (incarnation, digest) in any::<(u64, [u8; 16])>(),
        reason in "[ -~]{0,400}",
    ) {
        let hello = Message::Hello(Hello { version: VERSION, incarnation, digest, node });
        let bytes = encoded(3, 0, hello.clone());
        prop_assert!(bytes.len() <= GREETING_BYTES_MAX);
        comes_back(&bytes, (3, 0), &hello);
        let bytes = encoded(3, 0, Message::Refusal(&reason));
        prop_assert!(bytes.len() <= GREETING_BYTES_MAX);
        comes_back(&bytes, (3, 0), &Message::Refusal(&reason));
    }

    #[test]
    fn what_nodes_say_of_themselves_comes_back(tables in any::<u64>(), is_ready in any::<bool>()) {
        let message = Message::State(NodeState { tables, is_ready });
        comes_back(&encoded(9, 0, message.clone()), (9, 0), &message);
    }

    /// Every accepted frame can be written again with the same bytes: no meaningless frame is
    /// accepted.
    #[test]
    fn any_bytes_are_read_as_they_are_or_refused(mut bytes in vec(any::<u8>(), 4..300), kind in 0..9_u8) {
        let length = bytes.len() as u32 - 4;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        if let Some(at) = bytes.get_mut(4) {
            *at = kind;
        }
        if let Ok(Some((frame, frame_bytes))) = decode(&bytes, FRAME_BYTES_MAX) {
            prop_assert_eq!(frame_bytes, bytes.len());
            if !matches!(&frame.message, Message::Hello(hello) if hello.version != VERSION) {
                prop_assert_eq!(encoded(frame.epoch, frame.sequence, frame.message), bytes);
            }
        }
    }
}

#[test]
fn a_record_of_ipv4_takes_27_bytes_and_its_end_14() {
    let client: SocketAddr = "198.51.100.1:4000".parse().unwrap();
    let key = FlowKey::new(client, "203.0.113.1:80".parse().unwrap(), 6).unwrap();
    let backend = [10, 0, 0, 1].into();
    let record = Record {
        key,
        backend,
        state: State::Established,
        age_ms: 1,
        left_ms: 2,
        moves: 3,
        wins_ties: true,
    };
    let bytes = |change| encoded(0, 1, Message::Changes(gathered(&[change]).changes())).len();
    let empty = encoded(0, 1, Message::Ack).len();
    assert_eq!(bytes(Change::Claim(record)) - empty, 27);
    assert_eq!(bytes(Change::End(key)) - empty, 14);
}

#[test]
fn the_longest_batch_fits_into_a_frame_with_the_longest_name() {
    let (from, to) = ("[2001:db8::1]:4000".parse().unwrap(), "[2001:db8::2]:80".parse().unwrap());
    let key = FlowKey::new(from, to, 6).unwrap();
    let backend = "2001:db8::3".parse().unwrap();
    let record = Record {
        key,
        backend,
        state: State::Other,
        age_ms: 1,
        left_ms: 2,
        moves: 3,
        wins_ties: true,
    };
    let mut gathered = Gathered::default();
    while gathered.has_room() {
        gathered.push(&Change::Claim(record));
    }
    let owner = &"a".repeat(63);
    let claims = gathered.changes();
    let bytes = encoded(0, 1, Message::Relayed { owner, incarnation: 1, claims });
    assert!(bytes.len() > FRAME_BYTES_MAX - 100, "{}", bytes.len());
    assert!(decode(&bytes, FRAME_BYTES_MAX).unwrap().is_some());
}

#[test]
fn a_length_out_of_range_is_refused_before_the_body_is_there() {
    for length in [0, 16, FRAME_BYTES_MAX as u32 - 3, u32::MAX] {
        let bytes = u32::to_be_bytes(length);
        let refused = decode(&bytes, FRAME_BYTES_MAX);
        assert!(matches!(refused, Err(Malformed::Length(_))), "{length}: {refused:?}");
    }
    let bytes = (GREETING_BYTES_MAX as u32 - 3).to_be_bytes();
    assert!(decode(&bytes, GREETING_BYTES_MAX).is_err());
    assert_eq!(decode(&bytes, FRAME_BYTES_MAX), Ok(None));
}

#[test]
fn a_hello_of_another_version_says_who_and_which_whatever_follows() {
    let node = "old".to_owned();
    let hello = Hello { version: VERSION, incarnation: 7, digest: [9; 16], node };
    let mut bytes = encoded(0, 0, Message::Hello(hello));
    bytes[26] = 9;
    for cut in [0, 8, 24] {
        let mut bytes = bytes[..bytes.len() - cut].to_vec();
        let length = bytes.len() as u32 - 4;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        let (frame, _) = decode(&bytes, GREETING_BYTES_MAX).unwrap().unwrap();
        let Message::Hello(hello) = frame.message else { panic!("{frame:?}") };
        assert_eq!((hello.version, &*hello.node), (9, "old"));
    }
}

/// No panic, and nothing read past the end, whatever changes in valid frames.
#[test]
fn mutated_frames_are_read_or_refused() {
    let mut rng = Rng::seeded(14);
    let (from, to) = ("[2001:db8::1]:4000".parse().unwrap(), "[2001:db8::2]:80".parse().unwrap());
    let key = FlowKey::new(from, to, 6).unwrap();
    let record = Record {
        key,
        backend: from.ip(),
        state: State::Other,
        age_ms: 1,
        left_ms: 2,
        moves: 3,
        wins_ties: true,
    };
    let gathered = gathered(&[Change::Claim(record), Change::End(key), Change::Claim(record)]);
    let sound = encoded(5, 6, Message::Changes(gathered.changes()));
    let mut refused_count = 0;
    for _ in 0..200_000 {
        let mut bytes = sound.clone();
        for _ in 0..=rng.index(3) {
            let at = rng.index(bytes.len());
            bytes[at] = rng.next_u64() as u8;
        }
        match decode(&bytes, FRAME_BYTES_MAX) {
            Ok(Some((Frame { message: Message::Changes(changes), .. }, _))) => {
                assert!(changes.iter().count() <= bytes.len() / 14);
            }
            Ok(_) => {}
            Err(_) => refused_count += 1,
        }
    }
    assert!(refused_count > 1_000, "{refused_count}");
}
