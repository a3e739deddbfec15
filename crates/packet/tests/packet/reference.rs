//! Random frames, written by this crate's functions and by another implementation, etherparse.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{
    EtherType, Ethernet2Header, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpNumber,
    Ipv6FlowLabel, SingleVlanHeader, VlanId, VlanPcp,
};
use hotloop_packet::{
    PacketBuf, WriteError,
    ethernet::{
        self, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, EthernetHeader, MacAddress, VlanTag,
    },
    icmp::{self, IcmpHeader},
    icmpv6::{self, Icmpv6Header as OwnIcmpv6Header},
    ip::{Ecn, protocol},
    ipv4::{self, Ipv4Header},
    ipv6::{self, Ipv6Header},
    memory::MemPacket,
    tcp::{self, TcpHeader},
    udp::{self, UdpHeader},
};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Udp,
    /// UDP without checksum.
    UdpUnsummed,
    Tcp,
    Icmp,
}

/// The values of all header fields of a frame. Each kind of message has some of them.
#[derive(Clone, Debug)]
pub struct Fields {
    pub kind: Kind,
    pub is_v6: bool,
    /// Source and destination.
    pub macs: [[u8; 6]; 2],
    /// VLAN, priority, drop eligible; the outermost first.
    pub tags: Vec<(u16, u8, bool)>,
    pub ends: [[u8; 16]; 2],
    pub tos: u8,
    pub ttl: u8,
    pub identification: u16,
    pub dont_fragment: bool,
    pub flow_label: u32,
    pub ports: [u16; 2],
    pub sequence: u32,
    pub acknowledgment: u32,
    pub flags: u8,
    pub window: u16,
    pub urgent_pointer: u16,
    pub options: Vec<u8>,
    /// Type, code, and the rest of the header.
    pub icmp: (u8, u8, u32),
    pub payload: Vec<u8>,
}

impl Fields {
    pub fn v4_ends(&self) -> [Ipv4Addr; 2] {
        self.ends.map(|end| Ipv4Addr::new(end[0], end[1], end[2], end[3]))
    }

    pub fn v6_ends(&self) -> [Ipv6Addr; 2] {
        self.ends.map(Ipv6Addr::from)
    }

    pub fn protocol(&self) -> u8 {
        match (self.kind, self.is_v6) {
            (Kind::Udp | Kind::UdpUnsummed, _) => protocol::UDP,
            (Kind::Tcp, _) => protocol::TCP,
            (Kind::Icmp, false) => protocol::ICMP,
            (Kind::Icmp, true) => protocol::ICMPV6,
        }
    }

    pub fn ecn(&self) -> Ecn {
        [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce][usize::from(self.tos & 3)]
    }

    /// Offset in bytes of the IP header.
    pub fn l3_offset(&self) -> usize {
        14 + 4 * self.tags.len()
    }

    /// Offset in bytes of the transport header.
    pub fn l4_offset(&self) -> usize {
        self.l3_offset() + if self.is_v6 { 40 } else { 20 }
    }
}

/// Random fields of a frame.
pub fn fields() -> impl Strategy<Value = Fields> {
    let kind = prop::sample::select(vec![Kind::Udp, Kind::UdpUnsummed, Kind::Tcp, Kind::Icmp]);
    let tags = prop::collection::vec((0..4096u16, 0..8u8, any::<bool>()), 0..3);
    let ip = any::<([[u8; 16]; 2], u8, u8, u16, bool, u32)>();
    let tcp = any::<([u16; 2], u32, u32, u8, u16, u16)>();
    let options = prop::collection::vec(any::<u8>(), 0..=40);
    let rest = (options, any::<(u8, u8, u32)>(), prop::collection::vec(any::<u8>(), 0..60));
    (kind, any::<(bool, [[u8; 6]; 2])>(), tags, ip, tcp, rest).prop_map(
        |(kind, (is_v6, macs), tags, ip, tcp, (options, icmp, payload))| {
            let (ends, tos, ttl, identification, dont_fragment, flow_label) = ip;
            let (ports, sequence, acknowledgment, flags, window, urgent_pointer) = tcp;
            Fields {
                kind,
                is_v6,
                macs,
                tags,
                ends,
                tos,
                ttl,
                identification,
                dont_fragment,
                flow_label: flow_label & 0xf_ffff,
                ports,
                sequence,
                acknowledgment,
                flags,
                window,
                urgent_pointer,
                options,
                icmp,
                payload,
            }
        },
    )
}

/// Puts all headers in front of a packet that holds the payload.
pub fn push<P: PacketBuf>(packet: &mut P, fields: &Fields) -> Result<(), WriteError> {
    let (kind, code, rest) = fields.icmp;
    match (fields.kind, fields.is_v6) {
        (Kind::Udp, _) => udp::push(packet, UdpHeader::new(fields.ports[0], fields.ports[1]))?,
        (Kind::UdpUnsummed, _) => {
            let header = UdpHeader::new(fields.ports[0], fields.ports[1]);
            udp::push(packet, header.without_checksum())?;
        }
        (Kind::Tcp, _) => {
            let mut header = TcpHeader::new(fields.ports[0], fields.ports[1], fields.flags);
            header.set_sequence_number(fields.sequence);
            header.set_acknowledgment_number(fields.acknowledgment);
            header.set_window(fields.window);
            header.set_urgent_pointer(fields.urgent_pointer);
            tcp::push(packet, header, &fields.options)?;
        }
        (Kind::Icmp, false) => icmp::push(packet, IcmpHeader::new(kind, code, rest))?,
        (Kind::Icmp, true) => icmpv6::push(packet, OwnIcmpv6Header::new(kind, code, rest))?,
    }
    let ethertype = if fields.is_v6 {
        let [source, destination] = fields.v6_ends();
        let mut header = Ipv6Header::new(source, destination, fields.protocol());
        header.set_hop_limit(fields.ttl);
        header.set_dscp(fields.tos >> 2);
        header.set_ecn(fields.ecn());
        header.set_flow_label(fields.flow_label);
        ipv6::push(packet, header)?;
        ETHERTYPE_IPV6
    } else {
        let [source, destination] = fields.v4_ends();
        let mut header = Ipv4Header::new(source, destination, fields.protocol());
        header.set_ttl(fields.ttl);
        header.set_dscp(fields.tos >> 2);
        header.set_ecn(fields.ecn());
        header.set_identification(fields.identification);
        header.set_dont_fragment(fields.dont_fragment);
        ipv4::push(packet, header)?;
        ETHERTYPE_IPV4
    };
    let [source, destination] = fields.macs.map(MacAddress::new);
    ethernet::push(packet, EthernetHeader::new(source, destination, ethertype))?;
    for (vlan, priority, is_drop_eligible) in fields.tags.iter().rev() {
        let mut tag = VlanTag::new(ETHERTYPE_VLAN, *vlan);
        tag.set_priority(*priority);
        tag.set_drop_eligible(*is_drop_eligible);
        ethernet::insert_tag(packet, tag)?;
    }
    Ok(())
}

/// The frame, as this crate writes it.
pub fn pushed(fields: &Fields) -> MemPacket {
    let mut packet = MemPacket::new(&fields.payload);
    push(&mut packet, fields).unwrap();
    packet
}

/// The frame, as etherparse writes it.
pub fn reference(fields: &Fields) -> Vec<u8> {
    let (ip, message) = if fields.is_v6 { reference_v6(fields) } else { reference_v4(fields) };
    let last = if fields.is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
    let after = |index| if index < fields.tags.len() { EtherType(ETHERTYPE_VLAN) } else { last };
    let [source, destination] = fields.macs;
    let mut frame =
        Ethernet2Header { source, destination, ether_type: after(0) }.to_bytes().to_vec();
    for (index, (vlan, priority, drop_eligible_indicator)) in fields.tags.iter().enumerate() {
        let tag = SingleVlanHeader {
            pcp: VlanPcp::try_new(*priority).unwrap(),
            drop_eligible_indicator: *drop_eligible_indicator,
            vlan_id: VlanId::try_new(*vlan).unwrap(),
            ether_type: after(index + 1),
        };
        frame.extend(tag.to_bytes());
    }
    frame.extend(ip);
    frame.extend(message);
    frame.extend(&fields.payload);
    frame
}

fn reference_v4(fields: &Fields) -> (Vec<u8>, Vec<u8>) {
    let [source, destination] = fields.v4_ends().map(|end| end.octets());
    let number = IpNumber(fields.protocol());
    let mut ip = etherparse::Ipv4Header::new(0, fields.ttl, number, source, destination).unwrap();
    ip.dscp = etherparse::IpDscp::try_new(fields.tos >> 2).unwrap();
    ip.ecn = etherparse::IpEcn::try_new(fields.tos & 3).unwrap();
    ip.identification = fields.identification;
    ip.dont_fragment = fields.dont_fragment;
    let message = match fields.kind {
        Kind::Udp | Kind::UdpUnsummed => {
            reference_udp(fields, |header| header.calc_checksum_ipv4(&ip, &fields.payload).unwrap())
        }
        Kind::Tcp => {
            reference_tcp(fields, |header| header.calc_checksum_ipv4(&ip, &fields.payload).unwrap())
        }
        Kind::Icmp => {
            let (type_u8, code_u8, rest) = fields.icmp;
            let kind = Icmpv4Type::Unknown { type_u8, code_u8, bytes5to8: rest.to_be_bytes() };
            Icmpv4Header::with_checksum(kind, &fields.payload).to_bytes().to_vec()
        }
    };
    ip.set_payload_len(message.len() + fields.payload.len()).unwrap();
    ip.header_checksum = ip.calc_header_checksum();
    (ip.to_bytes().to_vec(), message)
}

fn reference_v6(fields: &Fields) -> (Vec<u8>, Vec<u8>) {
    let [source, destination] = fields.ends;
    let mut ip = etherparse::Ipv6Header {
        traffic_class: fields.tos,
        flow_label: Ipv6FlowLabel::try_new(fields.flow_label).unwrap(),
        payload_length: 0,
        next_header: IpNumber(fields.protocol()),
        hop_limit: fields.ttl,
        source,
        destination,
    };
    let message = match fields.kind {
        Kind::Udp | Kind::UdpUnsummed => {
            reference_udp(fields, |header| header.calc_checksum_ipv6(&ip, &fields.payload).unwrap())
        }
        Kind::Tcp => {
            reference_tcp(fields, |header| header.calc_checksum_ipv6(&ip, &fields.payload).unwrap())
        }
        Kind::Icmp => {
            let (type_u8, code_u8, rest) = fields.icmp;
            let kind = Icmpv6Type::Unknown { type_u8, code_u8, bytes5to8: rest.to_be_bytes() };
            let header = Icmpv6Header::with_checksum(kind, source, destination, &fields.payload);
            header.unwrap().to_bytes().to_vec()
        }
    };
    ip.set_payload_length(message.len() + fields.payload.len()).unwrap();
    (ip.to_bytes().to_vec(), message)
}

fn reference_udp(fields: &Fields, checksum: impl Fn(&etherparse::UdpHeader) -> u16) -> Vec<u8> {
    let mut header = etherparse::UdpHeader {
        source_port: fields.ports[0],
        destination_port: fields.ports[1],
        length: (8 + fields.payload.len()) as u16,
        checksum: 0,
    };
    if fields.kind == Kind::Udp {
        header.checksum = checksum(&header);
    }
    header.to_bytes().to_vec()
}

fn reference_tcp(fields: &Fields, checksum: impl Fn(&etherparse::TcpHeader) -> u16) -> Vec<u8> {
    let [source, destination] = fields.ports;
    let mut header =
        etherparse::TcpHeader::new(source, destination, fields.sequence, fields.window);
    header.acknowledgment_number = fields.acknowledgment;
    let bit = |index: u8| fields.flags >> index & 1 == 1;
    (header.fin, header.syn, header.rst, header.psh) = (bit(0), bit(1), bit(2), bit(3));
    (header.ack, header.urg, header.ece, header.cwr) = (bit(4), bit(5), bit(6), bit(7));
    header.urgent_pointer = fields.urgent_pointer;
    header.set_options_raw(&fields.options).unwrap();
    header.checksum = checksum(&header);
    header.to_bytes().to_vec()
}
