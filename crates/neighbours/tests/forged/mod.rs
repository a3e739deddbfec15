//! Frames that claim a neighbour's address, and stations that take it over.

mod frames;
mod net;

use frames::{Arp, Nd};
use hotloop_packet::ethernet::MacAddress;
use hotloop_packet::{arp, nd};
use net::{
    BACKS, BACKS_V6, CLIENTS, CLIENTS_V6, EVIL, GATEWAY, GATEWAY_V4, GATEWAY_V6, Net, OWN, OWN_V6,
};
use std::net::Ipv6Addr;
use std::time::Duration;

const HOST: MacAddress = MacAddress::new([2, 0, 0, 0, 0x77, 0x77]);
const NOBODY: MacAddress = MacAddress::new([0; 6]);

/// How long the gateway's address is watched after a forged frame: longer than it takes to follow
/// the gateway to another station.
const AFTER: Duration = Duration::from_secs(5);

fn own_frame(reply: Arp) -> Vec<u8> {
    reply.frame(OWN)
}

/// Forged frames of ARP, and the link that each arrives on.
fn forged_arp() -> Vec<(&'static str, bool, Vec<u8>)> {
    let reply = Arp::reply(EVIL);
    let announcement = Arp { target: GATEWAY_V4, operation: 1, ..reply };
    let own = |port: bool| if port { BACKS.mac } else { CLIENTS.mac };
    let vlan = |frame: Vec<u8>, vlan: u16| {
        [&frame[..12], &[0x81, 0x00], &vlan.to_be_bytes(), &frame[12..]].concat()
    };
    let everybody = MacAddress::BROADCAST;
    vec![
        ("a reply that nobody asked for", true, own_frame(reply)),
        ("an announcement", true, announcement.frame(everybody)),
        ("an announcement in a reply", true, Arp { operation: 2, ..announcement }.frame(everybody)),
        ("a request for the own address", true, Arp { operation: 1, ..reply }.frame(everybody)),
        ("a reply on the clients' link", false, reply.frame(own(false))),
        ("an announcement on the clients' link", false, announcement.frame(everybody)),
        ("a request on the clients' link", false, Arp { operation: 1, ..reply }.frame(own(false))),
        ("to another station, on the clients' link", false, reply.frame(HOST)),
        ("to another station", true, reply.frame(HOST)),
        ("to a group of stations", true, reply.frame(MacAddress::new([1, 0, 0x5e, 0, 0, 1]))),
        ("in VLAN 99, on the clients' link", false, vlan(reply.frame(own(false)), 99)),
        ("in VLAN 99", true, vlan(reply.frame(OWN), 99)),
        ("in two tags", true, vlan(vlan(reply.frame(OWN), 0), 0)),
        ("operation 9", true, own_frame(Arp { operation: 9, ..reply })),
        ("operation 0", true, own_frame(Arp { operation: 0, ..reply })),
        (
            "a reply to another address",
            true,
            own_frame(Arp { target: [10, 9, 0, 77].into(), ..reply }),
        ),
        ("the own Ethernet address", true, own_frame(Arp::reply(OWN))),
        ("no Ethernet address", true, own_frame(Arp::reply(NOBODY))),
        ("the Ethernet address of all", true, own_frame(Arp::reply(everybody))),
        ("a group's Ethernet address", true, own_frame(Arp::reply(MacAddress::new([3; 6])))),
    ]
}

/// Forged frames of neighbour discovery.
fn forged_nd() -> Vec<(&'static str, bool, Vec<u8>)> {
    let answer = Nd::advertisement(EVIL);
    let announcement = Nd { flags: 0x20, destination: nd::ALL_NODES, ..answer };
    let question = Nd { source: GATEWAY_V6, target: OWN_V6, ..Nd::solicitation(EVIL) };
    let all = nd::mac_of_group(nd::ALL_NODES);
    let global: Ipv6Addr = "2001:db8:c::1".parse().unwrap();
    let group = nd::group_of(OWN_V6);
    vec![
        ("an advertisement that nobody asked for", true, answer.frame(OWN)),
        ("an announcement", true, announcement.frame(all)),
        ("without the override flag", true, Nd { flags: 0, ..answer }.frame(OWN)),
        ("without the override flag, solicited", true, Nd { flags: 0x40, ..answer }.frame(OWN)),
        ("of a router", true, Nd { flags: 0xe0, ..answer }.frame(OWN)),
        ("a solicitation", true, question.frame(OWN)),
        (
            "a solicitation of the group",
            true,
            Nd { destination: group, ..question }.frame(nd::mac_of_group(group)),
        ),
        ("an advertisement on the clients' link", false, answer.frame(CLIENTS.mac)),
        ("an announcement on the clients' link", false, announcement.frame(all)),
        ("a solicitation on the clients' link", false, question.frame(CLIENTS.mac)),
        (
            "from another station",
            true,
            Nd { source: "fe80::666".parse().unwrap(), ..answer }.frame(OWN),
        ),
        ("from the own address", true, Nd { source: OWN_V6, ..answer }.frame(OWN)),
        ("from no address", true, Nd { source: Ipv6Addr::UNSPECIFIED, ..answer }.frame(OWN)),
        ("from a group", true, Nd { source: nd::ALL_NODES, ..answer }.frame(OWN)),
        (
            "from a global address, to another station",
            false,
            Nd { source: global, ..answer }.frame(HOST),
        ),
        ("to another station", true, answer.frame(HOST)),
        ("to another address", true, Nd { destination: global, ..answer }.frame(OWN)),
        (
            "solicited, to all",
            true,
            Nd { flags: 0x60, destination: nd::ALL_NODES, ..answer }.frame(all),
        ),
        ("hop limit 254", true, Nd { hop_limit: 254, ..answer }.frame(OWN)),
        ("code 1", true, Nd { code: 1, ..answer }.frame(OWN)),
        ("a wrong checksum", true, Nd { checksum_error: 1, ..answer }.frame(OWN)),
        ("an option without length", true, Nd { option_words: 0, ..answer }.frame(OWN)),
        ("the own Ethernet address", true, Nd::advertisement(OWN).frame(OWN)),
        ("no Ethernet address", true, Nd::advertisement(NOBODY).frame(OWN)),
        ("a group's Ethernet address", true, Nd::advertisement(MacAddress::BROADCAST).frame(OWN)),
    ]
}

/// Lets each frame arrive once the gateway is known, and again and again while the gateway is being
/// asked for, and checks that packets still go to the gateway, which answers.
fn assert_nothing_redirects(of: impl Fn() -> Net, forged: Vec<(&'static str, bool, Vec<u8>)>) {
    for (what, is_on_backs, frame) in forged {
        for count in [1, 40] {
            let mut net = of();
            assert_eq!(net.run(Duration::from_secs(1)), vec![GATEWAY]);
            let mut reached = Vec::new();
            for _ in 0..count {
                net.receive(is_on_backs, &frame);
                reached.extend(net.run(AFTER / count));
            }
            reached.dedup();
            assert_eq!(reached, [GATEWAY], "{what}, {count} times");
        }
    }
}

#[test]
fn no_forged_arp_redirects_what_goes_to_a_gateway_that_answers() {
    assert_nothing_redirects(Net::v4, forged_arp());
}

#[test]
fn no_forged_neighbour_discovery_redirects_what_goes_to_a_gateway_that_answers() {
    assert_nothing_redirects(Net::v6, forged_nd());
}

#[test]
fn what_claims_an_address_of_ipv4_by_neighbour_discovery_is_ignored() {
    let mapped = GATEWAY_V4.to_ipv6_mapped();
    let mut net = Net::v4();
    net.run(Duration::from_secs(1));
    // The station has addresses of both families there.
    net.listen(BACKS_V6.into());
    net.receive(true, &Nd { target: mapped, ..Nd::advertisement(EVIL) }.frame(OWN));
    assert_eq!((net.run(AFTER), net.count("doubted")), (vec![GATEWAY], 0));
}

#[test]
fn a_gateway_keeps_its_address_in_a_flood_of_claims() {
    for (mut net, frame) in [
        (Net::v4(), Arp { target: GATEWAY_V4, ..Arp::reply(EVIL) }.frame(MacAddress::BROADCAST)),
        (Net::v6(), Nd::advertisement(EVIL).frame(OWN)),
    ] {
        net.run(Duration::from_secs(1));
        let asked_before = net.question_count();
        let mut reached = Vec::new();
        for _ in 0..1_000 {
            (0..100).for_each(|_| net.receive(true, &frame));
            reached.extend(net.run(Duration::from_millis(10)));
        }
        reached.dedup();
        assert_eq!(reached, [GATEWAY]);
        // However many frames arrive, a question is sent at most every 0.4 s.
        let asked = net.question_count() - asked_before;
        assert!((20..=26).contains(&asked), "{asked} questions in 10 s");
        assert!(net.count("refused") > 90_000, "{} refused", net.count("refused"));
        assert_eq!((net.count("doubted") <= asked + 1, net.count("changed")), (true, 0));
    }
}

/// Lets the gateway go silent and another station announce itself in its place. Returns the time
/// until packets go to that station, with one packet in each `pause`.
fn time_to_follow(mut net: Net, announcement: &[u8], pause: Duration) -> Duration {
    net.run(Duration::from_secs(1));
    net.gateway = EVIL;
    net.send_each(pause);
    net.receive(true, announcement);
    let mut waited = Duration::ZERO;
    while net.known() != Some(EVIL) {
        net.run(Duration::from_millis(10));
        waited += Duration::from_millis(10);
        assert!(waited < Duration::from_secs(60), "it was never followed");
    }
    assert_eq!((net.count("doubted"), net.count("changed")), (1, 1));
    assert_eq!(net.run(Duration::from_secs(70)), [EVIL]);
    waited
}

#[test]
fn a_gateway_that_takes_over_is_followed_within_two_seconds() {
    let arp =
        Arp { target: GATEWAY_V4, operation: 1, ..Arp::reply(EVIL) }.frame(MacAddress::BROADCAST);
    let announcement = Nd { flags: 0xa0, destination: nd::ALL_NODES, ..Nd::advertisement(EVIL) };
    let nd = announcement.frame(nd::mac_of_group(nd::ALL_NODES));
    for pause_ms in [10, 100, 1_000] {
        let pause = Duration::from_millis(pause_ms);
        for (net, frame) in [(Net::v4(), &arp), (Net::v6(), &nd)] {
            let waited = time_to_follow(net, frame, pause);
            assert!(waited < Duration::from_secs(2), "{waited:?} with a packet each {pause:?}");
        }
    }
}

#[test]
fn a_gateway_that_falls_silent_is_replaced_by_one_that_answers() {
    // Without an announcement, packets are lost until the silent gateway is asked.
    let mut net = Net::v4();
    net.run(Duration::from_secs(1));
    net.gateway = EVIL;
    let reached = net.run(Duration::from_secs(40));
    assert_eq!((reached, net.count("changed")), (vec![GATEWAY, EVIL], 1));
}

#[test]
fn a_request_makes_its_sender_known_that_is_asked_for_and_confirms_nothing() {
    let mut net = Net::v4();
    net.gateway = NOBODY;
    assert_eq!(net.run(Duration::from_millis(500)), []);
    let request = Arp { operation: 1, ..Arp::reply(GATEWAY) };
    net.receive(true, &request.frame(MacAddress::BROADCAST));
    assert_eq!(net.run(Duration::from_millis(500)), [GATEWAY]);
    assert_eq!((net.count("learned"), net.state().as_str()), (1, "probing"));
    for _ in 0..50 {
        net.receive(true, &request.frame(MacAddress::BROADCAST));
        net.run(Duration::from_secs(1));
    }
    assert_eq!(net.known(), Some(GATEWAY));
    net.run(Duration::from_secs(10));
    assert_eq!(net.known(), None, "it has not answered for a minute");
}

#[test]
fn only_an_answer_to_a_question_makes_an_address_known() {
    let announcement = Arp { target: GATEWAY_V4, ..Arp::reply(EVIL) };
    let mut net = Net::v4();
    net.gateway = NOBODY;
    assert_eq!(net.run(Duration::from_millis(100)), []);
    net.receive(true, &announcement.frame(MacAddress::BROADCAST));
    assert_eq!(net.run(Duration::from_millis(100)), [], "an announcement");
    net.receive(false, &Arp::reply(EVIL).frame(CLIENTS.mac));
    assert_eq!(net.run(Duration::from_millis(100)), [], "on another link");
    // Packets stop waiting after three seconds; an answer that comes much later has no open
    // question.
    net.send_each(Duration::from_secs(3_600));
    net.run(Duration::from_secs(10));
    net.receive(true, &Arp::reply(EVIL).frame(OWN));
    assert_eq!((net.known(), net.count("refused")), (None, 2));
    net.gateway = GATEWAY;
    net.send_each(Duration::from_millis(10));
    assert_eq!(net.run(Duration::from_secs(1)), [GATEWAY]);
}

/// The subset of these frames that make the gateway known while it is being asked for.
fn that_teach(
    of: impl Fn() -> Net,
    forged: Vec<(&'static str, bool, Vec<u8>)>,
) -> Vec<&'static str> {
    let teaches = |frame: &(&str, bool, Vec<u8>)| {
        let mut net = of();
        net.gateway = NOBODY;
        net.run(Duration::from_millis(100));
        net.receive(frame.1, &frame.2);
        net.known().is_some()
    };
    forged.iter().filter(|frame| teaches(frame)).map(|frame| frame.0).collect()
}

#[test]
fn what_is_not_for_this_station_or_forbidden_teaches_nothing_of_an_unknown_one_either() {
    let answers = ["a reply that nobody asked for", "a request for the own address"];
    assert_eq!(that_teach(Net::v4, forged_arp()), answers);
    let answers = [
        "an advertisement that nobody asked for",
        "without the override flag, solicited",
        "of a router",
        "a solicitation",
        "a solicitation of the group",
        "from another station",
    ];
    assert_eq!(that_teach(Net::v6, forged_nd()), answers);
}

#[test]
fn no_other_station_answers_a_question_to_the_gateway_alone() {
    let announcement = Arp { target: GATEWAY_V4, ..Arp::reply(EVIL) }.frame(MacAddress::BROADCAST);
    let mut net = Net::v4();
    net.run(Duration::from_secs(1));
    net.gateway = NOBODY;
    net.receive(true, &announcement);
    let asked = net.question_count();
    net.run(Duration::from_millis(500));
    assert_eq!(net.question_count() - asked, 2);
    net.receive(true, &own_frame(Arp::reply(EVIL)));
    assert_eq!((net.known(), net.state().as_str()), (Some(GATEWAY), "probing"));
    // Once all are asked, another station may answer.
    net.run(Duration::from_millis(500));
    net.receive(true, &own_frame(Arp::reply(EVIL)));
    assert_eq!((net.known(), net.state().as_str()), (Some(EVIL), "reachable"));
}

#[test]
fn an_advertisement_without_an_address_confirms_the_one_that_is_known() {
    let mut net = Net::v6();
    net.run(Duration::from_secs(29));
    net.gateway = NOBODY;
    let without = Nd { option_words: 0, has_option: false, ..Nd::advertisement(GATEWAY) };
    for _ in 0..35 {
        // From the thirtieth second on, the station is asked at its Ethernet address, which its
        // answer need not repeat.
        net.receive(true, &Nd { flags: 0xc0, ..without }.frame(OWN));
        net.run(Duration::from_secs(1));
    }
    assert_eq!(net.known(), Some(GATEWAY));
    assert_eq!(net.count("learned"), 1);
}

#[test]
fn one_address_on_two_links_is_two_neighbours() {
    let mut net = Net::v6();
    net.run(Duration::from_secs(1));
    net.ask_for(CLIENTS_V6, GATEWAY_V6);
    net.receive(false, &Nd::advertisement(HOST).frame(CLIENTS.mac));
    assert_eq!(net.known_on(CLIENTS_V6.id(), GATEWAY_V6.into()), Some(HOST));
    assert_eq!((net.known(), net.run(AFTER)), (Some(GATEWAY), vec![GATEWAY]));
}

#[test]
fn a_frame_with_a_priority_tag_is_of_no_vlan() {
    let frame = Arp { operation: arp::operation::REPLY, ..Arp::reply(GATEWAY) }.frame(OWN);
    let tagged = [&frame[..12], &[0x81, 0, 0xe0, 0], &frame[12..]].concat();
    let mut net = Net::v4();
    net.gateway = NOBODY;
    net.run(Duration::from_millis(100));
    net.receive(true, &tagged);
    assert_eq!(net.run(Duration::from_millis(100)), [GATEWAY]);
}
