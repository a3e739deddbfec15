//! Frames as bytes, and bytes that are not frames.

use hotloop::packet::flow_key::FlowKey;
use hotloop::testing::Rng;
use hotloop_agreement::Birth;
use hotloop_agreement::Standing;
use hotloop_agreement::barrier::{Member, Phase, Step};
use hotloop_balancer::clock::STEPS_MAX;
use hotloop_balancer::connection::State;
use hotloop_balancer::exceptions::Record;
use hotloop_cluster::sync::wire::{
    Drains, FRAME_BYTES_MAX, Frame, GREETING_BYTES_MAX, Gathered, Hello, Malformed, Message,
    NodeState, Part, VERSION, decode,
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
    (key(), any::<IpAddr>(), state, 0..STEPS_MAX, any::<bool>(), any::<u32>()).prop_map(
        |(key, backend, state, number, is_adopted, left_ms)| {
            let birth = Birth::new(number);
            let birth = if is_adopted { birth.adopted() } else { birth };
            Record { key, backend, state, birth, left_ms }
        },
    )
}

fn state() -> impl Strategy<Value = NodeState> {
    let step = prop::sample::select(vec![Step::Idle, Step::Ready, Step::Marked, Step::Switched]);
    let digest = || prop::option::of(1..u64::MAX);
    let digests = (digest(), digest(), digest(), digest());
    ((any::<(u64, bool, bool, u32, u64)>(), 0..=STEPS_MAX), step, digests).prop_map(
        |(((tables, is_ready, is_waiting, table, generation), clock), step, digests)| {
            let (walked_for, in_use, other, wanted) = digests;
            let phase = Phase { table, step };
            let member = Member { phase, generation, is_waiting, walked_for };
            let standing = Standing { member, in_use, other, wanted };
            NodeState { tables, is_ready, clock, standing }
        },
    )
}

fn encoded(revision: u64, sequence: u64, message: Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame { revision, sequence, message }.encode(&mut bytes);
    bytes
}

fn gathered(claims: &[Record]) -> Gathered {
    let mut gathered = Gathered::default();
    claims.iter().for_each(|claim| gathered.push(claim));
    gathered
}

/// Whether any prefix of the frame waits for more, and the whole is read as `message`.
fn comes_back(bytes: &[u8], (revision, sequence): (u64, u64), message: &Message<'_>) {
    for cut in [0, 3, 4, 20, bytes.len() - 1] {
        assert_eq!(decode(&bytes[..cut.min(bytes.len() - 1)], FRAME_BYTES_MAX), Ok(None));
    }
    let (frame, frame_bytes) = decode(bytes, FRAME_BYTES_MAX).unwrap().unwrap();
    assert_eq!((frame.revision, frame.sequence, frame_bytes), (revision, sequence, bytes.len()));
    assert_eq!(frame.message, *message);
}

proptest! {
    #[test]
    fn claims_come_back_as_they_were(
        claims in vec(record(), 0..200),
        numbers in any::<(u64, u64)>(),
    ) {
        let gathered = gathered(&claims);
        let message = Message::Claims(gathered.claims());
        let bytes = encoded(numbers.0, numbers.1, message.clone());
        comes_back(&bytes, numbers, &message);
        prop_assert_eq!(gathered.claims().iter().collect::<Vec<_>>(), claims);
    }

    #[test]
    fn greetings_come_back_as_they_were(
        node in "[a-z0-9-]{1,63}",
        digest in any::<[u8; 16]>(),
        reason in "[ -~]{0,400}",
    ) {
        let hello = Message::Hello(Hello { version: VERSION, digest, node });
        let bytes = encoded(3, 0, hello.clone());
        prop_assert!(bytes.len() <= GREETING_BYTES_MAX);
        comes_back(&bytes, (3, 0), &hello);
        let bytes = encoded(3, 0, Message::Refusal(&reason));
        prop_assert!(bytes.len() <= GREETING_BYTES_MAX);
        comes_back(&bytes, (3, 0), &Message::Refusal(&reason));
    }

    #[test]
    fn states_come_back_as_they_were(state in state()) {
        let message = Message::State(state);
        comes_back(&encoded(9, 0, message.clone()), (9, 0), &message);
    }

    #[test]
    fn parts_of_reference_tables_come_back_as_they_were(
        bytes in vec(any::<u8>(), 0..2_000),
        (number, offset, more) in (any::<u32>(), 0..1_000_u32, 0..1_000_u32),
    ) {
        let text_bytes = offset + bytes.len() as u32 + more;
        let message = Message::Reference(Part { number, text_bytes, offset, bytes: &bytes });
        comes_back(&encoded(9, 0, message.clone()), (9, 0), &message);
    }

    #[test]
    fn questions_about_drains_come_back_as_they_were(
        asked in vec(any::<u64>(), 0..50),
        counts in vec(any::<(u64, u64)>(), 0..50),
    ) {
        let message = Message::Drains(Drains { asked, counts });
        comes_back(&encoded(9, 0, message.clone()), (9, 0), &message);
    }

    /// Every accepted frame of this version can be written again with the same bytes: no meaningless
    /// frame is accepted.
    #[test]
    fn any_bytes_are_read_as_they_are_or_refused(mut bytes in vec(any::<u8>(), 4..300), kind in 0..11_u8) {
        let length = bytes.len() as u32 - 4;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        if let Some(at) = bytes.get_mut(4) {
            *at = kind;
        }
        if let Ok(Some((frame, frame_bytes))) = decode(&bytes, FRAME_BYTES_MAX) {
            prop_assert_eq!(frame_bytes, bytes.len());
            let again = match &frame.message {
                Message::Hello(hello) if hello.version != VERSION => return Ok(()),
                Message::Unknown => return Ok(()),
                message => encoded(frame.revision, frame.sequence, message.clone()),
            };
            match frame.message {
                // A later version's state may have more flags and fields.
                Message::State(_) => prop_assert!(again.len() <= bytes.len()),
                _ => prop_assert_eq!(again, bytes),
            }
        }
    }
}

/// Frames of version 2, as they are sent for ever: a later version has to read them.
#[test]
fn frames_of_version_2_have_these_bytes() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let header = |kind: &str, revision: &str, sequence: &str, body: &str| {
        let length = 17 + body.len() / 2;
        format!("{length:08x}{kind}{revision:0>16}{sequence:0>16}{body}")
    };
    let node = "lb-1".to_owned();
    let hello = Hello { version: 2, digest: [9; 16], node };
    let body = format!("49504c420002046c622d31{}", "09".repeat(16));
    assert_eq!(hex(&encoded(1, 0, Message::Hello(hello))), header("00", "1", "0", &body));
    let member = Member {
        phase: Phase { table: 3, step: Step::Switched },
        generation: 5,
        is_waiting: true,
        walked_for: None,
    };
    let standing = Standing { member, in_use: Some(6), other: Some(8), wanted: None };
    let state = NodeState { tables: 4, is_ready: true, clock: 7, standing };
    let body = format!("{:016x}03{:016x}0000000303{:016x}", 4, 7, 5)
        + &[0_u64, 6, 8, 0].map(|digest| format!("{digest:016x}")).concat();
    assert_eq!(hex(&encoded(1, 0, Message::State(state))), header("06", "1", "0", &body));
    let part = Part { number: 3, text_bytes: 9, offset: 4, bytes: b"ab" };
    let body = "0000000300000009000000046162";
    assert_eq!(hex(&encoded(0, 0, Message::Reference(part))), header("07", "0", "0", body));
    let drains = Drains { asked: vec![1], counts: vec![(2, 3)] };
    let body = format!("00010001{:016x}{:016x}{:016x}", 1, 2, 3);
    assert_eq!(hex(&encoded(0, 0, Message::Drains(drains))), header("08", "0", "0", &body));
    let (from, to) = ("198.51.100.7:4000".parse().unwrap(), "203.0.113.10:80".parse().unwrap());
    let key = FlowKey::new(from, to, 6).unwrap();
    let backend = [10, 0, 0, 4].into();
    let (state, birth, left_ms) = (State::Closing, Birth::new(1).adopted(), 2);
    let claims = gathered(&[Record { key, backend, state, birth, left_ms }]);
    let body = "02060fa00050c6336407cb00710a0a000004000000000000000300000002";
    let bytes = encoded(1, 4, Message::Claims(claims.claims()));
    assert_eq!(hex(&bytes), header("04", "1", "4", body));
}

/// A made-up version 3, with more fields and another kind of frame.
#[test]
fn frames_of_the_next_version_are_read_as_far_as_they_are_known() {
    let longer = |mut bytes: Vec<u8>, more: &[u8]| {
        bytes.extend_from_slice(more);
        let length = bytes.len() as u32 - 4;
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes
    };
    let node = "lb-1".to_owned();
    let hello = Hello { version: 3, digest: [9; 16], node };
    let bytes = longer(encoded(0, 0, Message::Hello(hello.clone())), b"more");
    let (frame, frame_bytes) = decode(&bytes, GREETING_BYTES_MAX).unwrap().unwrap();
    assert_eq!((frame.message, frame_bytes), (Message::Hello(hello), bytes.len()));
    let state = NodeState { tables: 4, is_ready: true, clock: 7, standing: Standing::default() };
    let bytes = longer(encoded(0, 0, Message::State(state)), b"more");
    let (frame, _) = decode(&bytes, FRAME_BYTES_MAX).unwrap().unwrap();
    assert_eq!(frame.message, Message::State(state));
    let bytes = longer(encoded(0, 9, Message::Unknown), b"anything");
    let (frame, frame_bytes) = decode(&bytes, FRAME_BYTES_MAX).unwrap().unwrap();
    assert_eq!((frame.message, frame.sequence, frame_bytes), (Message::Unknown, 9, bytes.len()));
}

/// A claim between these addresses.
fn claim(from: &str, to: &str, backend: &str) -> Record {
    let key = FlowKey::new(from.parse().unwrap(), to.parse().unwrap(), 6).unwrap();
    let (backend, birth) = (backend.parse().unwrap(), Birth::new(1));
    Record { key, backend, state: State::Other, birth, left_ms: 2 }
}

#[test]
fn a_claim_of_ipv4_takes_30_bytes() {
    let claim = claim("198.51.100.1:4000", "203.0.113.1:80", "10.0.0.1");
    let bytes = encoded(0, 1, Message::Claims(gathered(&[claim]).claims())).len();
    assert_eq!(bytes - encoded(0, 1, Message::Ack).len(), 30);
}

#[test]
fn the_longest_batch_fits_into_a_frame() {
    let claim = claim("[2001:db8::1]:4000", "[2001:db8::2]:80", "2001:db8::3");
    let mut gathered = Gathered::default();
    while gathered.has_room() {
        gathered.push(&claim);
    }
    let bytes = encoded(0, 1, Message::Claims(gathered.claims()));
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
    let hello = Hello { version: VERSION, digest: [9; 16], node };
    let mut bytes = encoded(0, 0, Message::Hello(hello));
    bytes[26] = 9;
    for cut in [0, 8, 16] {
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
    let claim = claim("[2001:db8::1]:4000", "[2001:db8::2]:80", "2001:db8::3");
    let gathered = gathered(&[claim; 3]);
    let sound = encoded(5, 6, Message::Claims(gathered.claims()));
    let mut refused_count = 0;
    for _ in 0..200_000 {
        let mut bytes = sound.clone();
        for _ in 0..=rng.index(3) {
            let at = rng.index(bytes.len());
            bytes[at] = rng.next_u64() as u8;
        }
        match decode(&bytes, FRAME_BYTES_MAX) {
            Ok(Some((Frame { message: Message::Claims(claims), .. }, _))) => {
                assert!(claims.iter().count() <= bytes.len() / 30);
            }
            Ok(_) => {}
            Err(_) => refused_count += 1,
        }
    }
    assert!(refused_count > 1_000, "{refused_count}");
}
