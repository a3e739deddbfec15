//! Frames of other implementations, written again, or read.
//!
//! The VXLAN frames come from Linux 6.18: `ip link add vx type vxlan id 4660 local 192.0.2.1 remote
//! 192.0.2.2 dstport 4789 dev v0` on a veth pair in a network namespace (and the same with
//! `2001:db8::1` and `2001:db8::2`), a datagram sent through it, and an AF_PACKET socket on the peer.
//! The others come from Scapy 2.8.0, by the expressions in each test.

use std::net::{Ipv4Addr, Ipv6Addr};

use hotloop_packet::{
    PacketBuf, build,
    ethernet::{
        self, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, EthernetHeader, EthernetView, VlanTag,
    },
    gre::{self, ETHERTYPE_ETHERNET, GreHeader, GreView},
    icmp::{self, IcmpHeader},
    icmpv6::{self, Icmpv6Header},
    ip::protocol,
    ipv4::{self, Ipv4Header},
    ipv6::{self, Ipv6Header},
    memory::MemPacket,
    tcp::{self, TcpHeader, flags},
    udp::{self, UdpHeader, UdpView},
    vxlan::{self, VxlanHeader, VxlanView},
};

const V4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1)];
const V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
];

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |index: usize| u8::from_str_radix(&hex[index..index + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

/// Puts an Ethernet header from 02:00:00:00:00:01 to 02:00:00:00:00:02 in front.
fn push_ethernet(packet: &mut MemPacket, ethertype: u16) {
    let [source, destination] = [build::SOURCE_MAC, build::DESTINATION_MAC];
    ethernet::push(packet, EthernetHeader::new(source, destination, ethertype)).unwrap();
}

fn segment(flags: u8) -> TcpHeader {
    let mut header = TcpHeader::new(1000, 80, flags);
    header.set_sequence_number(7);
    header.set_acknowledgment_number(9);
    header.set_window(1024);
    header
}

/// Ether(src, dst)/Dot1Q(vlan=7, prio=5)/IP(src="10.0.0.1", dst="192.0.2.1", id=0, flags="DF")/
/// TCP(sport=1000, dport=80, seq=7, ack=9, flags="SA", window=1024, options=[("MSS", 1460), ("NOP",
/// None), ("WScale", 7)])/b"hello"
#[test]
fn tcp_with_options_in_a_vlan() {
    let expected = bytes(
        "0200000000020200000000018100a0070800450000350000400040066ec10a000001c000020103e80050\
         0000000700000009701204006be70000020405b40103030768656c6c6f",
    );
    let mut packet = MemPacket::new(b"hello");
    let options = [2, 4, 0x05, 0xb4, 1, 3, 3, 7];
    tcp::push(&mut packet, segment(flags::SYN | flags::ACK), &options).unwrap();
    ipv4::push(&mut packet, Ipv4Header::new(V4[0], V4[1], protocol::TCP)).unwrap();
    push_ethernet(&mut packet, ETHERTYPE_IPV4);
    let mut tag = VlanTag::new(ETHERTYPE_VLAN, 7);
    tag.set_priority(5);
    ethernet::insert_tag(&mut packet, tag).unwrap();
    assert_eq!(packet.data(), expected);
}

/// Ether(src, dst)/IPv6(src="2001:db8::1", dst="2001:db8::2", fl=0x12345)/TCP(sport=1000, dport=80,
/// seq=7, ack=9, flags="A", window=1024)/b"odd"
#[test]
fn tcp_in_ipv6() {
    let expected = bytes(
        "02000000000202000000000186dd600123450017064020010db800000000000000000000000120010db8\
         00000000000000000000000203e8005000000007000000095010040078b000006f6464",
    );
    let mut packet = MemPacket::new(b"odd");
    tcp::push(&mut packet, segment(flags::ACK), &[]).unwrap();
    let mut ip = Ipv6Header::new(V6[0], V6[1], protocol::TCP);
    ip.set_flow_label(0x12345);
    ipv6::push(&mut packet, ip).unwrap();
    push_ethernet(&mut packet, ETHERTYPE_IPV6);
    assert_eq!(packet.data(), expected);
}

/// Ether(src, dst)/IPv6(src="2001:db8::1", dst="2001:db8::2")/UDP(sport=1000, dport=53)/b"odd"
#[test]
fn udp_in_ipv6() {
    let expected = bytes(
        "02000000000202000000000186dd60000000000b114020010db800000000000000000000000120010db8\
         00000000000000000000000203e80035000bcce16f6464",
    );
    let mut packet = MemPacket::new(b"odd");
    udp::push(&mut packet, UdpHeader::new(1000, 53)).unwrap();
    ipv6::push(&mut packet, Ipv6Header::new(V6[0], V6[1], protocol::UDP)).unwrap();
    push_ethernet(&mut packet, ETHERTYPE_IPV6);
    assert_eq!(packet.data(), expected);
}

/// IP(src="10.0.0.1", dst="192.0.2.1", id=0, flags="DF")/ICMP(id=7, seq=9)/b"ping", and
/// IPv6(src="2001:db8::1", dst="2001:db8::2")/ICMPv6EchoRequest(id=7, seq=9, data=b"ping")
#[test]
fn echoes() {
    let expected = bytes("450000200000400040016edb0a000001c00002010800191f0007000970696e67");
    let mut packet = MemPacket::new(b"ping");
    let header = IcmpHeader::new(icmp::kind::ECHO_REQUEST, 0, 7 << 16 | 9);
    icmp::push(&mut packet, header).unwrap();
    ipv4::push(&mut packet, Ipv4Header::new(V4[0], V4[1], protocol::ICMP)).unwrap();
    assert_eq!(packet.data(), expected);

    let expected = bytes(
        "60000000000c3a4020010db800000000000000000000000120010db80000000000000000000000028000\
         45630007000970696e67",
    );
    let mut packet = MemPacket::new(b"ping");
    let header = Icmpv6Header::new(icmpv6::kind::ECHO_REQUEST, 0, 7 << 16 | 9);
    icmpv6::push(&mut packet, header).unwrap();
    ipv6::push(&mut packet, Ipv6Header::new(V6[0], V6[1], protocol::ICMPV6)).unwrap();
    assert_eq!(packet.data(), expected);
}

/// IP(src="198.51.100.1", dst="198.51.100.2", id=0, flags="DF")/GRE()/..., GRE(key_present=1,
/// seqnum_present=1, key=0x01020304, seqence_number=7)/..., the same with chksum_present=1, and
/// GRE(proto=0x6558)/Ether(src, dst)/..., about IP(src="10.0.0.1", dst="192.0.2.1", id=1)/
/// UDP(sport=1000, dport=80)/b"gre" (without payload in the last)
#[test]
fn gre_with_each_field() {
    let datagram = &build::udp().payload(b"gre").build()[14..];
    let plain = bytes(
        "4500003700004000402fe62dc6336401c6336402000008004500001f000100004011aecb0a000001c000\
         020103e80050000b632b677265",
    );
    let mut packet = MemPacket::new(datagram);
    gre::push(&mut packet, GreHeader::new(ETHERTYPE_IPV4)).unwrap();
    let ends = [[198, 51, 100, 1], [198, 51, 100, 2]].map(Ipv4Addr::from);
    ipv4::push(&mut packet, Ipv4Header::new(ends[0], ends[1], protocol::GRE)).unwrap();
    assert_eq!(packet.data(), plain);

    let keyed = bytes(
        "3000080001020304000000074500001f000100004011aecb0a000001c000020103e80050000b632b6772\
         65",
    );
    let header = GreHeader::new(ETHERTYPE_IPV4).with_key(0x0102_0304).with_sequence_number(7);
    let mut packet = MemPacket::new(datagram);
    gre::push(&mut packet, header).unwrap();
    assert_eq!(packet.data(), keyed);

    let mut all = bytes(
        "b00008001011000001020304000000074500001f000100004011aecb0a000001c000020103e80050000b\
         632b677265",
    );
    let view = GreView::parse(&all).unwrap();
    assert_eq!((*view, view.checksum(), view.header_bytes()), (header, Some(0x1011), 16));
    assert_eq!((view.payload(), view.is_checksum_right()), (datagram, true));
    all[20] ^= 1;
    assert!(!GreView::parse(&all).unwrap().is_checksum_right());

    let bridged = bytes(
        "0000655802000000000202000000000108004500001c000100004011aece0a000001c000020103e80050\
         00082fa4",
    );
    let mut packet = MemPacket::new(&build::udp().build());
    gre::push(&mut packet, GreHeader::new(ETHERTYPE_ETHERNET)).unwrap();
    assert_eq!(packet.data(), bridged);
}

/// A datagram "vxlan" from port 1000 to 53 of 10.1.0.2, or 10.2.0.2 over IPv6.
#[test]
fn vxlan_over_both_families() {
    let over_v4 = bytes(
        "020000000002020000000001080045000053920c00004011648ac0000201c0000202e6a912b5003f4c1b\
         080000000012340002000000010202000000010108004500002194804000401192470a0100010a010002\
         03e80035000d96d876786c616e",
    );
    let over_v6 = bytes(
        "02000000000202000000000186dd60000000003f114020010db800000000000000000000000120010db8\
         00000000000000000000000290da12b5003fca7b08000000001234000200000001020200000001010800\
         45000021161d4000401110a90a0200010a02000203e80035000d96d676786c616e",
    );
    for (frame, ip_bytes, source_port) in [(over_v4, 20, 0xe6a9), (over_v6, 40, 0x90da)] {
        let ip = EthernetView::parse(&frame).unwrap().payload();
        let datagram = UdpView::parse(&ip[ip_bytes..]).unwrap();
        assert_eq!(datagram.destination_port(), vxlan::PORT);
        let view = VxlanView::parse(datagram.payload()).unwrap();
        let inner = EthernetView::parse(view.payload()).unwrap();
        assert_eq!((view.vni(), inner.ethertype()), (4660, ETHERTYPE_IPV4));

        let mut packet = MemPacket::new(view.payload());
        vxlan::push(&mut packet, VxlanHeader::new(4660)).unwrap();
        udp::push(&mut packet, UdpHeader::new(source_port, vxlan::PORT)).unwrap();
        let ethertype = if ip_bytes == 20 {
            let ends = [[192, 0, 2, 1], [192, 0, 2, 2]].map(Ipv4Addr::from);
            let mut header = Ipv4Header::new(ends[0], ends[1], protocol::UDP);
            header.set_identification(0x920c);
            header.set_dont_fragment(false);
            ipv4::push(&mut packet, header).unwrap();
            ETHERTYPE_IPV4
        } else {
            ipv6::push(&mut packet, Ipv6Header::new(V6[0], V6[1], protocol::UDP)).unwrap();
            ETHERTYPE_IPV6
        };
        push_ethernet(&mut packet, ethertype);
        assert_eq!(packet.data(), frame);
    }
}
