//! Each kind of packet, on plain memory.

use hotloop::packet::PacketBuf;
use hotloop::packet::build::{PacketBuilder, arp_request, tcp, udp};
use hotloop::packet::ethernet::{EthernetView, MacAddress};
use hotloop::packet::ip::protocol;
use hotloop::packet::ipip;
use hotloop::packet::ipv4::Ipv4View;
use hotloop::packet::memory::MemPacket;
use hotloop::packet::{build, icmp, icmpv6};
use hotloop::testing::{Bench, Outcome, bench_burst};
use ipip_endpoint::arrival::{Arrived, Side};
use ipip_endpoint::endpoint::{Endpoint, EndpointDrop};
use ipip_endpoint::settings::{Answers, Settings, Stations};

const WIRE: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 1]);
const KERNEL: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 2]);
const ROUTER: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 3]);

/// A client, the service, and the tunnel to an own address: all four combinations of families.
const WAYS: [(&str, &str, &str, &str); 4] = [
    ("198.51.100.7:4000", "203.0.113.10:80", "192.0.2.7", "10.0.0.1"),
    ("198.51.100.7:4000", "203.0.113.10:80", "2001:db8:e::7", "2001:db8:b::1"),
    ("[2001:db8:c::7]:4000", "[2001:db8:f::10]:80", "192.0.2.7", "10.0.0.1"),
    ("[2001:db8:c::7]:4000", "[2001:db8:f::10]:80", "2001:db8:e::7", "2001:db8:b::1"),
];

type Out = Outcome<hotloop::engine::Routed<MemPacket, Side>, EndpointDrop>;

struct Lab(Bench<Endpoint>);

impl Lab {
    fn new(answers: Answers, next_hop: Option<MacAddress>) -> Self {
        let settings = Settings {
            addresses: vec!["10.0.0.1".parse().unwrap(), "2001:db8:b::1".parse().unwrap()],
            balancers: vec!["192.0.2.0/26".parse().unwrap(), "2001:db8:e::/64".parse().unwrap()],
            answers,
            next_hop,
            mtu_bytes: 1500,
        };
        let endpoint = Endpoint::new(settings, Stations { wire: WIRE, kernel: KERNEL });
        Self(bench_burst(endpoint.unwrap()))
    }

    /// An endpoint with answers to `ROUTER`, unchanged.
    fn direct() -> Self {
        Self::new(Answers::Direct, Some(ROUTER))
    }

    /// An endpoint with answers to `ROUTER`, in a tunnel from an own address to the balancer's.
    fn tunnelling(source: &str, destination: &str) -> Self {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        Self::new(Answers::Tunnelled { source, destination }, Some(ROUTER))
    }

    fn feed(&mut self, side: Side, frame: &[u8]) -> Out {
        self.0.feed_items([Arrived { packet: MemPacket::new(frame), side }])
    }

    /// The single packet that comes out, and its side.
    fn one(&mut self, side: Side, frame: &[u8]) -> (Side, MemPacket) {
        let out = self.feed(side, frame);
        assert_eq!((out.packets().len(), out.created()), (1, 0));
        let routed = &out.packets()[0];
        (routed.route, routed.packet.clone())
    }

    fn dropped(&mut self, side: Side, frame: &[u8], reason: EndpointDrop) {
        let out = self.feed(side, frame);
        assert!(out.packets().is_empty(), "{reason:?}");
        assert_eq!(out.dropped(reason), 1, "{reason:?}");
    }
}

fn stations(packet: &MemPacket) -> (MacAddress, MacAddress) {
    let view = EthernetView::parse(packet.data()).unwrap();
    (view.source(), view.destination())
}

fn request(client: &str, vip: &str) -> PacketBuilder {
    tcp().from(client).to(vip).ttl(17).payload([7; 100])
}

#[test]
fn a_balancers_tunnel_is_unwrapped_to_the_kernel_in_all_four_combinations() {
    for (client, vip, balancer, own) in WAYS {
        let wrapped = request(client, vip).tunnelled(balancer, own).build();
        let (route, packet) = Lab::direct().one(Side::Wire, &wrapped);
        assert_eq!(route, Side::Kernel);
        assert_eq!(stations(&packet), (WIRE, KERNEL));
        assert_eq!(packet.data()[12..], request(client, vip).build()[12..], "{client} {own}");
    }
}

#[test]
fn answers_leave_as_they_are() {
    for (client, vip, ..) in WAYS {
        let answer = request(vip, client).build();
        let (route, packet) = Lab::direct().one(Side::Kernel, &answer);
        assert_eq!((route, stations(&packet)), (Side::Wire, (WIRE, ROUTER)));
        assert_eq!(packet.data()[12..], answer[12..]);
    }
}

#[test]
fn answers_leave_in_a_tunnel_to_the_balancer_in_all_four_combinations() {
    for (client, vip, balancer, own) in WAYS {
        let answer = request(vip, client).build();
        let (route, mut packet) = Lab::tunnelling(own, balancer).one(Side::Kernel, &answer);
        assert_eq!((route, stations(&packet)), (Side::Wire, (WIRE, ROUTER)));
        let tunnel = ipip::decapsulate(&mut packet).unwrap();
        let ends = (tunnel.source.to_string(), tunnel.destination.to_string());
        assert_eq!(ends, (own.to_owned(), balancer.to_owned()));
        // The tunnel counts as a hop.
        assert_eq!(packet.data()[12..], request(vip, client).ttl(16).build()[12..]);
    }
}

#[test]
fn without_a_next_hop_answers_go_where_tunnels_come_from() {
    let mut lab = Lab::new(Answers::Direct, None);
    let (client, vip, balancer, own) = WAYS[0];
    let answer = request(vip, client).build();
    lab.dropped(Side::Kernel, &answer, EndpointDrop::NoNextHop);
    let stranger = request(client, vip).macs(KERNEL, WIRE).tunnelled("192.0.2.64", own).build();
    lab.dropped(Side::Wire, &stranger, EndpointDrop::UnknownBalancer);
    lab.dropped(Side::Kernel, &answer, EndpointDrop::NoNextHop);
    lab.one(Side::Wire, &request(client, vip).macs(ROUTER, WIRE).tunnelled(balancer, own).build());
    let (_, packet) = lab.one(Side::Kernel, &answer);
    assert_eq!(stations(&packet), (WIRE, ROUTER));
}

#[test]
fn what_is_no_balancers_tunnel_to_an_own_address_stays_out() {
    let mut lab = Lab::direct();
    let inner = || request("198.51.100.7:4000", "203.0.113.10:80");
    let arp = arp_request("10.0.0.9".parse().unwrap(), "10.0.0.1".parse().unwrap());
    lab.dropped(Side::Wire, &arp, EndpointDrop::NotIp);
    // A health check, and the service's own address untunnelled.
    let check = tcp().from("192.0.2.1:5000").to("10.0.0.1:80").build();
    lab.dropped(Side::Wire, &check, EndpointDrop::NotOurs);
    lab.dropped(Side::Wire, &inner().build(), EndpointDrop::NotOurs);
    let elsewhere = inner().tunnelled("192.0.2.1", "10.0.0.2").build();
    lab.dropped(Side::Wire, &elsewhere, EndpointDrop::NotOurs);
    let stranger = inner().tunnelled("192.0.3.1", "10.0.0.1").build();
    lab.dropped(Side::Wire, &stranger, EndpointDrop::UnknownBalancer);
    let own = inner().tunnelled("192.0.2.1", "10.0.0.1");
    lab.dropped(Side::Wire, &own.clone().build()[..50], EndpointDrop::Truncated);
    lab.dropped(Side::Wire, &own.clone().build()[..30], EndpointDrop::Malformed);
    let mut corrupt = own.build();
    corrupt[14 + 10] ^= 1;
    lab.dropped(Side::Wire, &corrupt, EndpointDrop::BadChecksum);
    let congested = inner().tos(0).tunnelled("192.0.2.1", "10.0.0.1").build();
    let mut frame = congested;
    // Only the outer mark becomes 3; its checksum follows.
    frame[15] |= 3;
    hotloop::packet::ipv4::fill_checksum(&mut frame[14..]).unwrap();
    lab.dropped(Side::Wire, &frame, EndpointDrop::Congestion);
    let whole =
        build::protocol(protocol::IPV4).from("192.0.2.1").to("10.0.0.1").payload([0x45; 2000]);
    for fragment in whole.build_fragments(1500) {
        lab.dropped(Side::Wire, &fragment, EndpointDrop::TunnelFragment);
    }
}

#[test]
fn what_the_kernel_says_to_its_link_stays_there() {
    for mut lab in [Lab::direct(), Lab::tunnelling("10.0.0.1", "192.0.2.1")] {
        for neighbours in ["[ff02::2]:1", "[fe80::1]:1", "224.0.0.22:1", "255.255.255.255:67"] {
            lab.dropped(Side::Kernel, &udp().to(neighbours).build(), EndpointDrop::OnLink);
        }
        let arp = arp_request("10.0.0.1".parse().unwrap(), "10.0.0.9".parse().unwrap());
        lab.dropped(Side::Kernel, &arp, EndpointDrop::NotIp);
        lab.dropped(Side::Kernel, &udp().build()[..30], EndpointDrop::Malformed);
    }
}

#[test]
fn a_hop_is_counted_into_the_tunnel_alone() {
    let (client, vip, balancer, own) = WAYS[0];
    let last = request(vip, client).ttl(1).build();
    Lab::direct().one(Side::Kernel, &last);
    Lab::tunnelling(own, balancer).dropped(Side::Kernel, &last, EndpointDrop::TtlExpired);
}

/// An answer with an IP packet of `bytes` bytes that must not be fragmented.
fn answer_of(vip: &str, client: &str, bytes: usize) -> Vec<u8> {
    let header_bytes = if vip.starts_with('[') { 60 } else { 40 };
    tcp().from(vip).to(client).dont_fragment().payload(vec![7; bytes - header_bytes]).build()
}

#[test]
fn the_kernel_learns_what_fits_the_tunnel() {
    for (client, vip, balancer, own) in WAYS {
        let mut lab = Lab::tunnelling(own, balancer);
        let max = if own.contains(':') { 1460 } else { 1480 };
        let (_, packet) = lab.one(Side::Kernel, &answer_of(vip, client, max));
        assert_eq!(packet.len_bytes(), 14 + 1500);

        let out = lab.feed(Side::Kernel, &answer_of(vip, client, max + 1));
        assert_eq!((out.dropped(EndpointDrop::TooBig), out.created()), (1, 1));
        let notice = &out.packets()[0];
        assert_eq!((notice.route, stations(&notice.packet)), (Side::Kernel, (WIRE, KERNEL)));
        let packet = &notice.packet.data()[14..];
        // RFC 792 with RFC 1191, section 4; RFC 4443, section 3.2.
        if vip.starts_with('[') {
            assert_eq!((packet[40], packet[41]), (icmpv6::kind::PACKET_TOO_BIG, 0));
            assert_eq!(packet[44..48], (max as u32).to_be_bytes());
        } else {
            let header = Ipv4View::parse(packet).unwrap();
            assert_eq!(header.source().octets(), [192, 0, 0, 8]);
            assert_eq!((packet[20], packet[21]), (icmp::kind::DESTINATION_UNREACHABLE, 4));
            assert_eq!(packet[26..28], (max as u16).to_be_bytes());
        }
    }
}

#[test]
fn without_a_tunnel_the_mtu_is_the_ports() {
    let mut lab = Lab::direct();
    lab.one(Side::Kernel, &answer_of("203.0.113.10:80", "198.51.100.7:4000", 1500));
    let out = lab.feed(Side::Kernel, &answer_of("203.0.113.10:80", "198.51.100.7:4000", 1501));
    assert_eq!((out.dropped(EndpointDrop::TooBig), out.created()), (1, 1));
}

#[test]
fn what_may_be_fragmented_is() {
    let (client, vip, balancer, own) = WAYS[0];
    let datagram = udp().from(vip).to(client).payload(vec![7; 4000]).build();
    let out = Lab::tunnelling(own, balancer).feed(Side::Kernel, &datagram);
    // 4,008 bytes in pieces of at most 1,456.
    assert_eq!((out.packets().len(), out.created(), out.dropped_sum()), (3, 2, 0));
    let mut offset_bytes = 0;
    for (index, routed) in out.packets().iter().enumerate() {
        assert_eq!((routed.route, stations(&routed.packet)), (Side::Wire, (WIRE, ROUTER)));
        assert!(routed.packet.len_bytes() <= 14 + 1500);
        let mut packet = routed.packet.clone();
        ipip::decapsulate(&mut packet).unwrap();
        let view = Ipv4View::parse(&packet.data()[14..]).unwrap();
        assert_eq!(
            (view.fragment_offset_bytes(), view.more_fragments()),
            (offset_bytes, index < 2)
        );
        offset_bytes += view.payload().len();
    }
    assert_eq!(offset_bytes, 4008);
}

#[test]
fn packets_of_both_sides_share_a_burst() {
    let (client, vip, balancer, own) = WAYS[0];
    let wrapped = request(client, vip).tunnelled(balancer, own).build();
    let answer = request(vip, client).build();
    let arrived = (0..150).map(|index| match index % 3 {
        0 => Arrived { packet: MemPacket::new(&wrapped), side: Side::Wire },
        1 => Arrived { packet: MemPacket::new(&answer), side: Side::Kernel },
        _ => Arrived { packet: MemPacket::new(&answer), side: Side::Wire },
    });
    let out = Lab::direct().0.feed_items(arrived);
    let to = |side| out.packets().iter().filter(|routed| routed.route == side).count();
    assert_eq!((to(Side::Kernel), to(Side::Wire)), (50, 50));
    assert_eq!(out.dropped(EndpointDrop::NotOurs), 50);
}
