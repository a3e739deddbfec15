//! The contracts of the verified firewalls of Vigor (SOSP 2019) and Klint (NSDI 2022), as properties.
//!
//! | contract | property |
//! |---|---|
//! | Vigor: a packet from the inside is forwarded and its flow recorded, if the flow table has room | `vigor_the_inside_passes_and_is_recorded_while_there_is_room` |
//! | Vigor: a packet from the outside is forwarded only if its flow began inside (or, here, if a rule allows it) and has not expired | `what_passes_was_allowed_or_belongs_to_what_was` |
//! | Vigor: expired flows are forgotten | `vigor_expired_flows_are_forgotten`, and the one before |
//! | Klint: a packet is forwarded byte for byte, to the other side, or dropped; nothing else is sent | [`Wall::feed`], which all of these call |
//! | a tunnel is no way round the rules | `a_tunnel_passes_by_no_flow_and_changes_none` |
//!
//! Vigor's and Klint's inside may send anything, so the properties of the inside are about [`OPEN`].

use crate::wall::{Fate, RULES, Wall};
use firewall::packet::Side;
use hotloop::packet::build::{PacketBuilder, echo_reply, echo_request, tcp, udp};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use proptest::prelude::*;
use std::collections::HashMap;

/// The rules of Vigor's and Klint's firewalls.
const OPEN: &str = r#"
[[rule]]
name = "inside"
from = "inside"
action = "allow"
"#;

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
    fn side(&self) -> Side {
        if self.is_from_inside { Side::Inside } else { Side::Outside }
    }

    /// Feeds the packet after its silence.
    fn feed(&self, wall: &mut Wall) -> Fate {
        wall.wait(self.silence_s);
        wall.feed(self.side(), self.packet())
    }

    fn packet(&self) -> PacketBuilder {
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
            What::Tcp(flags) => tcp().tcp_flags(flags).from(socket(from)).to(socket(to)),
            What::Udp => udp().from(socket(from)).to(socket(to)),
            What::Request => echo_request(self.ports[0], 1).from(address(from)).to(address(to)),
            What::Reply => echo_reply(self.ports[0], 1).from(address(from)).to(address(to)),
        }
    }

    /// The fields that both directions share.
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
            let has_passed = event.feed(&mut wall) == "passed";
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

    /// Every host of the inside may talk to every host outside, as long as the table has room, and is
    /// answered. The first packet of a flow never passes from the outside.
    #[test]
    fn vigor_the_inside_passes_and_is_recorded_while_there_is_room(
        flows in prop::collection::hash_set((any::<u16>(), 1..u16::MAX, any::<bool>()), 1..200),
    ) {
        const ROOM: usize = 64;
        let mut wall = Wall::with_room(OPEN, ROOM);
        for (index, (host, port, is_v6)) in flows.into_iter().enumerate() {
            let (client, server) = if is_v6 {
                (format!("[2001:db8::{host:x}]:{port}"), "[2001:db8:1::1]:53")
            } else {
                (format!("10.1.{}.{}:{port}", host >> 8, host & 255), "192.0.2.1:53")
            };
            prop_assert_eq!(wall.outside(udp().from(server).to(&*client)), "no_rule");
            let (query, answer) = (udp().from(&*client).to(server), udp().from(server).to(&*client));
            if index < ROOM {
                prop_assert_eq!(wall.inside(query), "passed");
                prop_assert_eq!(wall.outside(answer), "passed");
            } else {
                prop_assert_eq!(wall.inside(query), "table_full");
                prop_assert_eq!(wall.outside(answer), "no_rule");
            }
        }
    }

    /// After the longest timeout the firewall is as new: whatever came before, it has no connection, and
    /// treats the packets that come again as the first time.
    #[test]
    fn vigor_expired_flows_are_forgotten(events in events()) {
        let mut wall = Wall::with_room(RULES, 1000);
        let fates: Vec<_> = events.iter().map(|event| event.feed(&mut wall)).collect();
        wall.wait(7441);
        // Each turn looks through 15 of some 1200 places.
        (0..100).for_each(|_| wall.tick());
        prop_assert_eq!(wall.connection_count(), 0);
        let again: Vec<_> = events.iter().map(|event| event.feed(&mut wall)).collect();
        prop_assert_eq!(fates, again);
    }

    /// A packet in a tunnel of a stranger passes by no flow of the packet in it, and no flow notices it.
    #[test]
    fn a_tunnel_passes_by_no_flow_and_changes_none(events in events()) {
        let (mut plain, mut tunnelled) = (Wall::new(RULES), Wall::new(RULES));
        for event in events {
            let fate = event.feed(&mut plain);
            prop_assert_eq!(event.feed(&mut tunnelled), fate);
            for ends in [["203.0.113.66", "10.0.0.5"], ["2001:db8:6::6", "2001:db8::5"]] {
                let wrapped = event.packet().tunnelled(ends[0], ends[1]);
                prop_assert_eq!(tunnelled.outside(wrapped), "no_rule");
                let wrapped = event.packet().tunnelled(ends[1], ends[0]);
                prop_assert_eq!(tunnelled.inside(wrapped), "no_rule");
            }
        }
    }
}
