//! The contracts of Klint's and Vigor's firewalls, against a small model.

use crate::wall::{RULES, Wall};
use firewall::side::Side;
use hotloop::packet::build::{echo_reply, echo_request, tcp, udp};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Tcp(u8),
    Udp,
    Request,
    Reply,
}

/// A packet between an inside and an outside host, after a silence.
#[derive(Clone, Copy, Debug)]
struct Event {
    silence_s: u64,
    is_from_inside: bool,
    is_v6: bool,
    what: What,
    hosts: [u8; 2],
    ports: [u16; 2],
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let silence = prop_oneof![8 => Just(0u64), 1 => 1..70u64, 1 => prop::sample::select(vec![59, 61, 239, 241, 299, 301, 7439, 7441])];
    let flags = prop::sample::select(vec![SYN, SYN | ACK, ACK, FIN | ACK, RST]);
    let what = prop_oneof![4 => flags.prop_map(What::Tcp), 2 => Just(What::Udp), 1 => Just(What::Request), 1 => Just(What::Reply)];
    let ports = [prop::sample::select(vec![5000, 22]), prop::sample::select(vec![80, 53])];
    let event = (silence, any::<bool>(), any::<bool>(), what, [5..7u8, 5..7u8], ports);
    let event = event.prop_map(|(silence_s, is_from_inside, is_v6, what, hosts, ports)| Event {
        silence_s,
        is_from_inside,
        is_v6,
        what,
        hosts,
        ports,
    });
    prop::collection::vec(event, 1..150)
}

impl Event {
    fn frame(&self) -> Vec<u8> {
        let ends = [("10.0.0.", "2001:db8::"), ("192.0.2.", "2001:db8:1::")]
            .map(|(v4, v6)| if self.is_v6 { v6 } else { v4 });
        let address = |end: usize| format!("{}{}", ends[end], self.hosts[end]);
        let socket = |end: usize| {
            let address = address(end);
            if self.is_v6 {
                format!("[{address}]:{}", self.ports[end])
            } else {
                format!("{address}:{}", self.ports[end])
            }
        };
        let [from, to] = if self.is_from_inside { [0, 1] } else { [1, 0] };
        match self.what {
            What::Tcp(flags) => tcp().tcp_flags(flags).from(socket(from)).to(socket(to)).build(),
            What::Udp => udp().from(socket(from)).to(socket(to)).build(),
            What::Request => {
                echo_request(self.ports[0], 1).from(address(from)).to(address(to)).build()
            }
            What::Reply => echo_reply(self.ports[0], 1).from(address(from)).to(address(to)).build(),
        }
    }

    /// What both directions share.
    fn flow(&self) -> (u8, bool, [u8; 2], [u16; 2]) {
        match self.what {
            What::Tcp(_) => (6, self.is_v6, self.hosts, self.ports),
            What::Udp => (17, self.is_v6, self.hosts, self.ports),
            _ => (1, self.is_v6, self.hosts, [self.ports[0]; 2]),
        }
    }

    /// Whether the packet may open a connection by [`RULES`].
    fn is_allowed(&self) -> bool {
        match self.what {
            What::Tcp(SYN) if self.is_from_inside => self.ports[1] == 80,
            What::Tcp(SYN) => self.ports[0] == 22 && self.hosts[0] == 5,
            What::Udp => self.is_from_inside && self.ports[1] == 53,
            What::Request => self.is_from_inside,
            _ => false,
        }
    }

    /// The shortest and the longest time without packets after which its flow is forgotten.
    fn timeouts_s(&self) -> [u64; 2] {
        match self.what {
            What::Tcp(_) => [240, 7440],
            What::Udp => [300; 2],
            _ => [60; 2],
        }
    }

    /// Whether an echo goes the wrong way: only the inside may ask.
    fn is_echo_against_the_rules(&self) -> bool {
        matches!(self.what, What::Request | What::Reply)
            && (self.what == What::Request) != self.is_from_inside
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A packet passes only if a rule allows it or a packet of its flow did within the timeout; and what a
    /// rule allows, or belongs to such a flow, does pass: unchanged and to the other side, as `feed` checks.
    #[test]
    fn what_passes_was_allowed_or_belongs_to_what_was(events in events()) {
        let mut wall = Wall::new(RULES);
        let (mut last_s, mut now_s) = (HashMap::new(), 0);
        for event in events {
            now_s += event.silence_s;
            wall.wait(event.silence_s);
            let side = if event.is_from_inside { Side::Inside } else { Side::Outside };
            let has_passed = wall.feed(side, event.frame()) == "passed";
            let silence_s = last_s.get(&event.flow()).map(|last| now_s - last);
            let [short_s, long_s] = event.timeouts_s();
            let may_belong = silence_s.is_some_and(|it| it <= long_s) && !event.is_echo_against_the_rules();
            let must_belong = may_belong && silence_s.is_some_and(|it| it <= short_s) && event.what != What::Tcp(SYN);
            prop_assert!(!has_passed || event.is_allowed() || may_belong, "{event:?} passed");
            prop_assert!(has_passed || !(event.is_allowed() || must_belong), "{event:?} did not pass");
            if has_passed {
                last_s.insert(event.flow(), now_s);
            }
        }
    }
}
