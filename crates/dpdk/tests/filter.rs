//! Filters against tcpdump's verdicts on the same frames, in one segment and in several.
#![allow(clippy::print_stdout, reason = "a test says what it skips")]

use crate::common::eal;
use hotloop_dpdk::{Error, Filter};
use hotloop_packet::build::{
    arp_request, echo_reply, echo_request, protocol, tcp, time_exceeded, udp, unreachable,
};
use hotloop_stage::Carries;
use hotloop_stage::tap::{Filter as _, Seen};
use hotloop_test_tools::tool;
use std::io::{Seek, Write};
use std::process::Stdio;

/// Every kind of primitive that pcap-filter(7) has for Ethernet, and some combinations.
const EXPRESSIONS: [&str; 50] = [
    "",
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "ip proto 4",
    "ip6 proto 6",
    "ip6 proto 60",
    "ip6 protochain 17",
    "ip protochain 6",
    "ether[len - 4:4] = 0x07070707",
    "ether[ip[4:4]] = 0",
    "ip[2:2] > 100 and ip[2:2] * 2 < 900",
    "ip[8] % 3 = 1 or ip[8] / 5 > 20",
    "ip proto \\icmp",
    "host 198.51.100.7",
    "src host 198.51.100.7",
    "dst host 2001:db8:f::10",
    "net 10.0.0.0/8",
    "src net 2001:db8::/32",
    "port 443",
    "dst port 53",
    "portrange 1000-2000",
    "tcp port 443 and host 198.51.100.7",
    "udp port 53 or icmp",
    "not arp and not tcp",
    "ether host 02:00:00:00:09:02",
    "ether src 02:00:00:00:09:02",
    "ether broadcast",
    "ether multicast",
    "ether proto 0x0800",
    "ip multicast",
    "vlan",
    "vlan 7",
    "vlan 7 and ip and port 443",
    "vlan and vlan 9",
    "greater 200",
    "less 60",
    "len = 54",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[13] = 2",
    "ip[0] & 0xf != 5",
    "ip[6:2] & 0x1fff = 0",
    "icmp[icmptype] = icmp-unreach",
    "udp[8:4] = 0x07070707",
    "ether[len - 1] = 7",
    "(tcp and (port 80 or port 443)) or (udp and dst net 10.0.0.0/8 and not port 53) or arp",
];

/// A generator of repeatable numbers: xorshift64.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Frames of all kinds, and each of them cut and with bytes changed.
fn frames() -> Vec<Vec<u8>> {
    let (client, vip) = ("198.51.100.7:1234", "203.0.113.10:443");
    let (client6, vip6) = ("[2001:db8:c::7]:53", "[2001:db8:f::10]:443");
    let request = || tcp().from(client).to(vip);
    let mut whole = vec![
        request().build(),
        request().tcp_flags(0x02).build(),
        request().tcp_flags(0x11).padded().build(),
        request().payload([7; 400]).build(),
        request().vlan(7).build(),
        request().vlan(8).build(),
        request().qinq(7, 9).build(),
        request().ipv4_options(&[1, 1, 1, 1]).build(),
        request().tunnelled("10.0.0.1", "192.0.2.1").build(),
        tcp().from(vip).to(client).build(),
        tcp().from(client6).to(vip6).build(),
        tcp().from(client6).to(vip6).vlan(7).build(),
        udp().from(client6).to(vip6).extension(60, &[1, 4, 0, 0, 0, 0]).build(),
        udp().from("10.1.2.3:9000").to("10.9.9.9:53").payload([7; 40]).build(),
        udp().from("10.1.2.3:9000").to("10.9.9.9:54").build(),
        udp().from("192.0.2.9:1500").to("224.0.0.5:520").build(),
        echo_request(7, 1).from("198.51.100.7").to("10.0.0.1").build(),
        echo_reply(7, 1).from("2001:db8:c::7").to("2001:db8:f::10").build(),
        unreachable(&request().build()).build(),
        time_exceeded(&request().build()).build(),
        protocol(47).from("10.0.0.1").to("10.0.0.2").payload([9; 60]).build(),
        arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        vec![0xFF; 60],
        vec![0; 14],
    ];
    whole.extend(udp().from("10.1.2.3:9").to("10.9.9.9:53").payload([7; 900]).build_fragments(400));
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let mut frames = whole.clone();
    for frame in &whole {
        for _ in 0..40 {
            let mut changed = frame.clone();
            for _ in 0..numbers.below(4) {
                let at = numbers.below(changed.len().min(64));
                changed[at] = numbers.below(256) as u8;
            }
            changed.truncate(1 + numbers.below(changed.len() + 20));
            frames.push(changed);
        }
    }
    frames
}

/// A frame in segments that end at these places.
struct Split<'a>(Vec<&'a [u8]>);

impl Carries for Split<'_> {
    fn bytes(&self) -> &[u8] {
        self.0[0]
    }

    fn total_bytes(&self) -> usize {
        self.0.iter().map(|segment| segment.len()).sum()
    }

    fn each_segment(&self, take: &mut dyn FnMut(&[u8])) {
        self.0.iter().for_each(|segment| take(segment));
    }
}

fn split<'a>(frame: &'a [u8], numbers: &mut Numbers) -> Split<'a> {
    let mut segments = Vec::new();
    let mut rest = frame;
    while !rest.is_empty() && segments.len() < 60 {
        let (segment, after) = rest.split_at(numbers.below(rest.len().min(30) + 1));
        segments.push(segment);
        rest = after;
    }
    segments.push(rest);
    Split(segments)
}

/// The numbers of the frames that match: each is captured at the second of its number.
fn tcpdump(capture: &std::fs::File, expression: &str) -> Vec<usize> {
    let mut input = capture.try_clone().unwrap();
    input.rewind().unwrap();
    let output = tool("tcpdump")
        .unwrap()
        .args(["-Z", "root", "-n", "-r", "-", "-w", "-", expression])
        .stdin(Stdio::from(input))
        .output()
        .unwrap();
    assert!(output.status.success(), "{expression}: {}", String::from_utf8_lossy(&output.stderr));
    let (mut rest, mut numbers) = (&output.stdout[24..], Vec::new());
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        numbers.push(word(0));
        rest = &rest[16 + word(8)..];
    }
    numbers
}

fn capture_of(frames: &[Vec<u8>]) -> std::fs::File {
    let mut bytes = [0xA1B2_C3D4_u32, 4 << 16 | 2, 0, 0, 262_144, 1].map(u32::to_le_bytes).concat();
    for (number, frame) in frames.iter().enumerate() {
        let length = frame.len() as u32;
        bytes.extend([number as u32, 0, length, length].map(u32::to_le_bytes).as_flattened());
        bytes.extend(frame);
    }
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    file
}

#[test]
fn a_filter_agrees_with_tcpdump() {
    if let Err(why) = tool("tcpdump") {
        return println!("skipped: {why}");
    }
    let frames = frames();
    let capture = capture_of(&frames);
    let mut numbers = Numbers(7);
    for expression in EXPRESSIONS {
        let filter = Filter::compile(eal(), expression).unwrap();
        let matches = |seen: Seen<'_>| filter.select(&[seen]) != 0;
        let matching = frames.iter().enumerate().filter(|(_, frame)| {
            let whole = matches(Seen::of(&Split(vec![frame])));
            let parts = split(frame, &mut numbers);
            assert_eq!(matches(Seen::of(&parts)), whole, "{expression}: {:02x?}", parts.0);
            assert!(!whole || filter.needs().is_none_or(|needs| needs.are_met(frame)));
            whole
        });
        let matching: Vec<_> = matching.map(|(number, _)| number).collect();
        assert_eq!(matching, tcpdump(&capture, expression), "{expression}");
    }
}

#[test]
fn verdicts_of_a_burst_are_in_its_order() {
    let filter = Filter::compile(eal(), "ip6 or len = 3").unwrap();
    let frames = frames();
    for burst in frames.chunks(64) {
        let packets: Vec<_> = burst.iter().map(|frame| Split(vec![frame])).collect();
        let seen: Vec<_> = packets.iter().map(Seen::of).collect();
        let alone = seen.iter().enumerate();
        let alone = alone.map(|(index, seen)| filter.select(&[*seen]) << index).sum::<u64>();
        assert_eq!(filter.select(&seen), alone);
    }
    assert_eq!(filter.select(&[]), 0);
}

#[test]
fn a_packet_of_any_shape_is_looked_at_safely() {
    let filter = Filter::compile(eal(), "len > 65535 or len = 0 or ether[70000] = 7").unwrap();
    let long = vec![7; 200_000];
    let one = |segments: Vec<&[u8]>| filter.select(&[Seen::of(&Split(segments))]);
    assert_eq!(one(vec![&long]), 1);
    assert_eq!(one(vec![&long[..65_535]]), 0);
    assert_eq!(one(vec![&[]]), 1);
    assert_eq!(one(vec![&[], &[]]), 1);
    assert_eq!(one(vec![&long[..600]; 200]), 1);
    assert_eq!(one(vec![&long[..600]; 100]), 0);
    assert_eq!(one(vec![&long[..2000]; 64]), 1);
}

/// Joins terms up to the maximum length of an expression.
fn longest(head: &str, terms: impl Iterator<Item = String>, between: &str) -> String {
    let mut expression = head.to_owned();
    for (number, term) in terms.enumerate() {
        let between = if number == 0 { "" } else { between };
        if expression.len() + between.len() + term.len() > Filter::EXPRESSION_BYTES_MAX {
            break;
        }
        expression.extend([between, &term]);
    }
    expression
}

fn digits() -> impl Iterator<Item = String> {
    (0..10).cycle().map(|digit: u32| digit.to_string())
}

/// Calls `run` on the smallest possible stack of a thread.
fn on_a_small_stack<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let thread = std::thread::Builder::new().stack_size(16 << 10);
    std::thread::scope(|scope| thread.spawn_scoped(scope, run).unwrap().join().unwrap())
}

#[test]
fn the_longest_expressions_compile_or_are_refused_in_time_on_any_stack() {
    // The maximum that INSTRUCTION_COUNT_MAX allows: these take the optimizer longest.
    let ranges = || (10..).map(|from| format!("{from}-{}", from + 1)).take(45);
    let nested = |open: &str, inner: &str, close: &str| {
        let rest = Filter::EXPRESSION_BYTES_MAX - inner.len() - "=0".len();
        let depth = rest / (open.len() + close.len());
        format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
    };
    let expressions = [
        longest("port ", digits(), "||"),
        longest("port ", digits(), "&&"),
        longest("geneve&&port ", digits(), "||"),
        longest("tcp port ", (10_000..).map(|port: u32| port.to_string()), "||"),
        longest("host ", (0..).map(|host: u32| format!("10.0.{}.1", host % 256)), "||"),
        longest("portrange ", ranges(), "||"),
        longest("portrange ", ranges(), "&&"),
        longest("len=", digits(), "+"),
        nested("(", "ip", ")"),
        nested("!", "ip", ""),
        nested("tcp[", "0", "]") + "=0",
    ];
    let (mut compiled_count, mut given_up_count) = (0, 0);
    for expression in &expressions {
        match on_a_small_stack(|| Filter::compile(eal(), expression)) {
            Ok(filter) => compiled_count += usize::from(filter.expression() == expression),
            Err(error) => {
                let error = error.to_string();
                // The time limit, which a busy machine reaches: AddressSanitizer makes this slow.
                let is_given_up = error.contains("it is not compiled within 10 s");
                given_up_count += usize::from(is_given_up);
                let is_refused = error.contains("instructions, and 4096 are the most")
                    || error.contains("expression rejects all packets");
                assert!((is_refused || is_given_up) && error.chars().count() < 300, "{error}");
            }
        }
    }
    let in_time = 6..expressions.len();
    assert!(in_time.contains(&(compiled_count + given_up_count)), "{compiled_count}");
    println!("{compiled_count} compiled, {given_up_count} given up after 10 s");
}

#[test]
fn an_expression_that_is_too_long_is_refused() {
    let ports: Vec<_> = (0..5000).map(|port| format!("port {port}")).collect();
    let error = on_a_small_stack(|| Filter::compile(eal(), &ports.join(" or "))).unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("filter \"port 0 or port 1 or"), "{error}");
    assert!(error.contains("…\": it has 63886 bytes, and 512 is the most: write net"), "{error}");
    let just = "ip".to_owned() + &" ".repeat(Filter::EXPRESSION_BYTES_MAX - 2);
    assert!(Filter::compile(eal(), &just).is_ok());
    assert!(Filter::compile(eal(), &(just + " ")).unwrap_err().to_string().contains("513 bytes"));
}

/// An expression that takes some hundred milliseconds before it is refused.
fn slow() -> String {
    longest("geneve&&port ", digits(), "||")
}

#[test]
fn no_filter_waits_for_another() {
    let mut asked_count = 0;
    let refused = Filter::compile_while(eal(), &slow(), || {
        if asked_count == 0 {
            Filter::compile(eal(), "tcp port 443").unwrap();
        }
        asked_count += 1;
        true
    });
    assert!(refused.unwrap_err().to_string().contains("instructions"));
    assert!(asked_count > 1, "the short one has waited for the long one");
}

#[test]
fn what_is_given_up_is_not_waited_for() {
    let mut asked_count = 0;
    // At the first query, which comes before a fast machine is done.
    let refused = Filter::compile_while(eal(), &slow(), || {
        asked_count += 1;
        false
    });
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("given up"), "{error}");
    assert_eq!(asked_count, 1);
}

#[test]
fn what_is_no_filter_is_refused_with_what_to_do() {
    let refused = |expression: &str| match Filter::compile(eal(), expression).unwrap_err() {
        error @ Error::Filter { .. } => error.to_string(),
        error => panic!("{error}"),
    };
    let wrong = refused("tcp prot 443");
    assert!(wrong.starts_with("filter \"tcp prot 443\": libpcap says: "), "{wrong}");
    assert!(wrong.ends_with("; pcap-filter(7) has the syntax"), "{wrong}");
    assert!(refused("port 99999").contains("libpcap says: "));
    assert!(refused("tcp\0").contains("zero byte"));
}
