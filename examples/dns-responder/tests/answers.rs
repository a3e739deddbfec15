//! The stage alone: queries, and their answers by the sections of RFC 1035.

use dns_responder::responder::{Responder, ResponderDrop};
use dns_responder::zone::Zone;
use hotloop::packet::build::{PacketBuilder, arp_request, echo_request, tcp, unreachable};
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::memory::MemPacket;
use hotloop::packet::{ipv4::Ipv4View, ipv6::Ipv6View, nd, udp::UdpView};
use hotloop::prelude::*;
use hotloop::testing::Outcome;
use std::sync::Arc;

pub const MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 9]);
pub const V4: &str = "192.0.2.53";
pub const V6: &str = "2001:db8::53";

pub const ZONE: &str = "
example.com             300 192.0.2.1
www.example.com.        300 192.0.2.80     ; one of two
www.example.com         300 192.0.2.81
www.example.com         600 2001:db8::80
a.b.deep.example.com    60  192.0.2.1
mixed.CASE.example.com. 60  192.0.2.2
";

const A: u16 = 1;
const TXT: u16 = 16;
const AAAA: u16 = 28;

const NO_ERROR: u8 = 0;
const FORMAT_ERROR: u8 = 1;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;
const REFUSED: u8 = 5;

/// A query with a random-looking identifier, that wishes recursion.
pub fn query(name: &str, kind: u16) -> Vec<u8> {
    let mut message = b"\xab\xcd\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00".to_vec();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(label.len() as u8);
        message.extend(label.bytes());
    }
    message.push(0);
    message.extend([kind, 1].map(u16::to_be_bytes).concat());
    message
}

fn to_v4(message: &[u8]) -> PacketBuilder {
    udp().from("10.0.0.7:5000").to(format!("{V4}:53")).payload(message)
}

pub fn responder(zone: &str) -> Responder {
    let addresses = [V4, V6].map(|address| address.parse().unwrap()).to_vec();
    Responder { mac: MAC, addresses, zone: Arc::new(Zone::parse(zone).unwrap()) }
}

/// A packet with as much room as those of a port.
pub fn received(frame: &[u8]) -> MemPacket {
    MemPacket::with_room(frame, 128, 2048 - frame.len())
}

fn answered(
    zone: &str,
    frames: impl IntoIterator<Item = Vec<u8>>,
) -> Outcome<MemPacket, ResponderDrop> {
    let packets = frames.into_iter().map(|frame| received(&frame));
    let classified = bench(Classify::outermost()).feed_items(packets).into_packets();
    bench(responder(zone)).feed_items(classified)
}

/// The message that answers one to port 53.
fn answer_of(message: &[u8]) -> Vec<u8> {
    let out = answered(ZONE, [to_v4(message).build()]);
    assert_eq!(out.packets().len(), 1, "{:?}", out.drops());
    let ip = Ipv4View::of_frame(out.packets()[0].data()).unwrap();
    assert!(ip.is_checksum_right());
    assert_eq!((ip.source().to_string().as_str(), ip.destination().octets()), (V4, [10, 0, 0, 7]));
    let udp = UdpView::parse(ip.payload()).unwrap();
    assert_eq!((udp.source_port(), udp.destination_port()), (53, 5000));
    udp.payload().to_vec()
}

/// The response code, and the data of the records.
fn records(answer: &[u8], question_bytes: usize) -> (u8, Vec<Vec<u8>>) {
    let count = u16::from_be_bytes([answer[6], answer[7]]);
    let (mut at, mut data) = (question_bytes, Vec::new());
    for _ in 0..count {
        assert_eq!(answer[at..at + 2], [0xc0, 12]);
        let len = usize::from(answer[at + 11]);
        data.push(answer[at + 12..at + 12 + len].to_vec());
        at += 12 + len;
    }
    assert_eq!(at, answer.len());
    (answer[3] & 15, data)
}

fn asked(name: &str, kind: u16) -> (u8, Vec<Vec<u8>>) {
    let query = query(name, kind);
    let answer = answer_of(&query);
    assert_eq!((&answer[..2], &answer[12..query.len()]), (&query[..2], &query[12..]));
    records(&answer, query.len())
}

#[test]
fn names_of_the_zone_are_answered_by_type() {
    let both = vec![vec![192, 0, 2, 80], vec![192, 0, 2, 81]];
    assert_eq!(asked("www.example.com", A), (NO_ERROR, both));
    assert_eq!(asked("www.example.com", AAAA).1.len(), 1);
    assert_eq!(asked("www.example.com", TXT), (NO_ERROR, vec![]));
    assert_eq!(asked("example.com", A), (NO_ERROR, vec![vec![192, 0, 2, 1]]));
}

#[test]
fn case_does_not_count_and_is_repeated() {
    assert_eq!(asked("WwW.eXample.COM", A).1.len(), 2);
    assert_eq!(asked("mixed.case.example.com", A).1.len(), 1);
}

#[test]
fn names_that_only_lead_to_others_exist() {
    assert_eq!(asked("a.b.deep.example.com", A).1.len(), 1);
    assert_eq!(asked("b.deep.example.com", A), (NO_ERROR, vec![]));
    assert_eq!(asked("deep.example.com", A), (NO_ERROR, vec![]));
    assert_eq!(asked("c.deep.example.com", A), (NO_SUCH_NAME, vec![]));
}

#[test]
fn other_zones_are_refused() {
    for name in ["www.example.org", "com", "", "notexample.com"] {
        assert_eq!(asked(name, A), (REFUSED, vec![]), "{name}");
    }
    // A label that looks like the end of a name in the zone.
    assert_eq!(asked("x\u{7}example\u{3}com", A), (REFUSED, vec![]));
    let mut chaos = query("www.example.com", A);
    *chaos.last_mut().unwrap() = 3;
    assert_eq!(answer_of(&chaos)[6..8], [0, 0]);
}

#[test]
fn flags_are_those_of_an_authority() {
    assert_eq!(answer_of(&query("www.example.com", A))[2..4], [0x85, NO_ERROR]);
    assert_eq!(answer_of(&query("www.example.org", A))[2..4], [0x81, REFUSED]);
    let mut update = query("www.example.com", A);
    update[2] = 0x28;
    assert_eq!(answer_of(&update)[2..4], [0xa8, NOT_IMPLEMENTED]);
}

#[test]
fn malformed_questions_get_an_error_without_question() {
    let whole = query("www.example.com", A);
    for length in 12..whole.len() {
        let answer = answer_of(&whole[..length]);
        assert_eq!((answer.len(), answer[3], &answer[4..12]), (12, FORMAT_ERROR, &[0; 8][..]));
    }
    let mut two = whole.clone();
    two[5] = 2;
    assert_eq!(answer_of(&two)[3], FORMAT_ERROR);
    let mut pointer = whole.clone();
    pointer[12] = 0xc0;
    assert_eq!(answer_of(&pointer)[3], FORMAT_ERROR);
    let long = query(&["x"; 128].join("."), A);
    assert_eq!(answer_of(&long)[3], FORMAT_ERROR);
}

#[test]
fn additional_records_are_left_out() {
    let mut query = query("www.example.com", A);
    query[11] = 1;
    let question_bytes = query.len();
    query.extend(b"\0\0\x29\x10\0\0\0\0\0\0\0");
    let answer = answer_of(&query);
    assert_eq!((answer[8..12].to_vec(), records(&answer, question_bytes).1.len()), (vec![0; 4], 2));
}

#[test]
fn an_answer_that_is_too_long_is_cut_and_shows_it() {
    let zone = |count: u8| {
        let lines = (0..count).map(|number| format!("www.example.com 1 192.0.2.{number}\n"));
        lines.collect::<String>()
    };
    let query = query("www.example.com", A);
    let fitting = (512 - query.len()) / 16;
    for (count, is_cut) in [(fitting, false), (fitting + 1, true)] {
        let out = answered(&zone(count as u8), [to_v4(&query).build()]);
        let answer = &out.packets()[0].data()[42..];
        assert_eq!(answer[2] & 2 != 0, is_cut);
        let expected = if is_cut { 0 } else { count };
        assert_eq!(records(answer, query.len()).1.len(), expected);
    }
}

#[test]
fn queries_over_ipv6_are_answered_with_a_checksum() {
    let query = query("www.example.com", AAAA);
    let frame = udp().from("[2001:db8::7]:5000").to(format!("[{V6}]:53")).payload(&query).build();
    let out = answered(ZONE, [frame]);
    let ip = Ipv6View::parse(&out.packets()[0].data()[14..]).unwrap();
    assert_eq!((ip.source().to_string().as_str(), ip.destination().segments()[7]), (V6, 7));
    let sum =
        hotloop::packet::checksum::transport_v6(ip.source(), ip.destination(), 17, ip.payload());
    assert_eq!(sum, 0);
}

#[test]
fn requests_that_make_a_host_reachable_are_answered() {
    let ping = echo_request(1, 2).from("10.0.0.7").to(V4).build();
    let arp = arp_request([10, 0, 0, 7].into(), V4.parse().unwrap());
    let mut solicitation = MemPacket::new(&[]);
    let client = ("fe80::7".parse().unwrap(), MacAddress::new([2, 0, 0, 0, 0, 1]));
    nd::solicit(&mut solicitation, client, V6.parse().unwrap()).unwrap();
    let out = answered(ZONE, [ping, arp, solicitation.data().to_vec()]);
    assert_eq!((out.packets().len(), out.drops()), (3, vec![]));
}

#[test]
fn what_is_not_for_the_responder_is_dropped_by_its_reason() {
    use ResponderDrop::{NotAnswered, NotForUs, NotQuery};
    let query = query("www.example.com", A);
    let mut response = query.clone();
    response[2] |= 0x80;
    let mut wrong = to_v4(&query).build();
    wrong[60] ^= 1;
    let wrapped = to_v4(&query).tunnelled("203.0.113.66", "10.0.0.5");
    for (frame, reason) in [
        (to_v4(&response).build(), NotQuery),
        (to_v4(&query[..11]).build(), NotQuery),
        (wrong, NotAnswered),
        (to_v4(&query).from("224.0.0.1:5000").build(), NotAnswered),
        (echo_request(1, 2).from("255.255.255.255").to(V4).build(), NotForUs),
        (to_v4(&query).to("192.0.2.54:53").build(), NotForUs),
        (to_v4(&query).to(format!("{V4}:54")).build(), NotForUs),
        (tcp().to(format!("{V4}:53")).build(), NotForUs),
        (arp_request([10, 0, 0, 7].into(), [192, 0, 2, 54].into()), NotForUs),
        (unreachable(&udp().from("10.0.0.1:1").to(format!("{V4}:53")).build()).build(), NotForUs),
        (wrapped.build(), NotForUs),
    ] {
        let out = answered(ZONE, [frame.clone()]);
        assert_eq!((out.packets().len(), out.dropped(reason)), (0, 1), "{reason:?} {frame:02x?}");
    }
}

#[test]
fn a_zone_that_cannot_be_read_names_the_line() {
    for line in ["a", "a 1", "a 1 192.0.2", "a x 192.0.2.1", "a..b 1 ::1", "a 1 ::1 ::2"] {
        let why = Zone::parse(&format!("a 1 ::1\n\n{line} ; why")).unwrap_err();
        assert_eq!(why, format!("line 3: write NAME TTL ADDRESS, not {:?}", format!("{line} ")));
    }
    let long = "x".repeat(64);
    assert!(Zone::parse(&format!("{long}.b 1 ::1")).is_err());
    assert!(Zone::parse(&format!("{} 1 ::1", ["x"; 128].join("."))).is_err());
}
