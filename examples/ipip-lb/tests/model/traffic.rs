//! Random packets with few clients, ports and addresses, so that they often coincide.

use super::rules::Input;
use super::scene::{OWN_V4, OWN_V6, Scene, Style, pick};
use hotloop::packet::build::{self, PacketBuilder};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use hotloop::testing::Rng;
use hotloop_balancer::spec::{Ports, Protocol, ServiceSpec};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Number of flows to remember for further packets.
const FLOWS_MAX: usize = 48;

/// Headroom that suffices for every packet.
const HEADROOM_BYTES: usize = 128;

/// The two ends of a flow.
#[derive(Clone, Debug)]
pub struct Flow {
    pub is_v6: bool,
    pub client: String,
    pub client_port: u16,
    pub vip: String,
    pub vip_port: u16,
    pub kind: Talk,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Talk {
    Tcp,
    Udp,
    Echo,
    Other(u8),
}

/// The source of packets.
#[derive(Debug)]
pub struct Traffic {
    pub rng: Rng,
    style: Style,
    mtu: usize,
    flows: VecDeque<Flow>,
    /// The configured services.
    services: Vec<ServiceSpec>,
    /// Fragments that are still on their way.
    pub pending: Vec<Vec<u8>>,
}

impl Traffic {
    pub fn new(rng: Rng, scene: &Scene) -> Self {
        let mtu = usize::from(scene.config.balancer.mtu);
        let services = scene.config.services.clone();
        Self { rng, style: scene.style, mtu, flows: VecDeque::new(), services, pending: Vec::new() }
    }

    /// Notes the changes of the scene.
    pub fn look_at(&mut self, scene: &Scene) {
        self.services.clone_from(&scene.config.services);
    }

    /// The next packet.
    pub fn next(&mut self) -> Input {
        let is_short_of_room = self.may_hide() && self.rng.permille(8);
        if is_short_of_room {
            let flow = self.flow();
            let builder = self.talk(&flow).ttl(9).payload([7; 8]);
            let headroom_bytes = self.rng.index(50);
            let is_echo = flow.kind == Talk::Echo;
            let headroom_bytes = if is_echo { HEADROOM_BYTES } else { headroom_bytes };
            return Input { frame: builder.build(), headroom_bytes };
        }
        let frame = match self.rng.index(1000) {
            0..430 => self.request(),
            430..560 => self.reply(),
            560..600 => self.tunnelled_request(),
            600..770 => self.fragment(),
            770..880 => self.icmp_error(),
            880..910 => self.foreign_tunnel(),
            910..930 => self.bad_tunnel(),
            930..950 => self.too_big(),
            950..970 => self.broken(),
            _ => self.stranger(),
        };
        Input { frame, headroom_bytes: HEADROOM_BYTES }
    }

    /// A flow: usually an earlier one.
    pub fn flow(&mut self) -> Flow {
        if !self.flows.is_empty() && self.rng.permille(800) {
            return self.flows[self.rng.index(self.flows.len())].clone();
        }
        let flow = if self.rng.permille(800) { self.flow_to_service() } else { self.any_flow() };
        self.flows.push_back(flow.clone());
        if self.flows.len() > FLOWS_MAX {
            self.flows.pop_front();
        }
        flow
    }

    fn any_flow(&mut self) -> Flow {
        let rng = &mut self.rng;
        let host = 8 + rng.index(8);
        let vip = match rng.permille(450) {
            true => format!("2001:db8:f::{host:x}"),
            false => format!("203.0.113.{host}"),
        };
        let kind = match rng.index(100) {
            0..50 => Talk::Tcp,
            50..80 => Talk::Udp,
            80..90 => Talk::Echo,
            _ => Talk::Other(pick(rng, &[47, 50, 132])),
        };
        let vip_port = pick(rng, &[53, 80, 81, 443, 8000, 8005]);
        self.flow_of(vip, vip_port, kind)
    }

    /// A flow that some service is likely to take.
    fn flow_to_service(&mut self) -> Flow {
        let rng = &mut self.rng;
        let service = &self.services[rng.index(self.services.len())];
        let prefix = service.address;
        let vip = match prefix.network() {
            IpAddr::V4(network) => {
                let host = rng.index(1 << (32 - prefix.len())) as u32;
                Ipv4Addr::from_bits(network.to_bits() | host).to_string()
            }
            IpAddr::V6(network) => {
                let host = rng.index(1 << (128 - prefix.len())) as u128;
                Ipv6Addr::from_bits(network.to_bits() | host).to_string()
            }
        };
        let vip_port = match service.ports {
            Ports::Any => pick(rng, &[53, 80, 443, 8000]),
            Ports::Range { first, last } => pick(rng, &[first, first, last]),
        };
        let kind = match (service.protocol, service.ports) {
            (Protocol::Tcp, _) => Talk::Tcp,
            (Protocol::Udp, _) => Talk::Udp,
            (Protocol::Any, Ports::Any) if rng.permille(300) => {
                pick(rng, &[Talk::Echo, Talk::Other(47), Talk::Other(50)])
            }
            (Protocol::Any, _) => pick(rng, &[Talk::Tcp, Talk::Tcp, Talk::Udp]),
        };
        let kind = if rng.permille(60) { Talk::Echo } else { kind };
        self.flow_of(vip, vip_port, kind)
    }

    fn flow_of(&mut self, vip: String, vip_port: u16, kind: Talk) -> Flow {
        let rng = &mut self.rng;
        let is_v6 = vip.contains(':');
        let host = 1 + rng.index(5);
        let client = match rng.index(100) {
            // A backend, or the balancer itself.
            0..5 if is_v6 => format!("2001:db8:b::{}", 1 + rng.index(4)),
            0..5 => format!("10.0.0.{}", 1 + rng.index(6)),
            5 => if is_v6 { OWN_V6 } else { OWN_V4 }.to_owned(),
            _ if is_v6 => format!("2001:db8:c::{host}"),
            _ => format!("198.51.100.{host}"),
        };
        let client_port = 1000 + rng.index(6) as u16;
        Flow { is_v6, client, client_port, vip, vip_port, kind }
    }

    /// Whether a later drop may hide the balancer's choice.
    pub fn may_hide(&self) -> bool {
        self.style == Style::Ample
    }

    /// A client's packet.
    pub fn talk(&mut self, flow: &Flow) -> PacketBuilder {
        let (from, to) = (end(&flow.client, flow.client_port), end(&flow.vip, flow.vip_port));
        match flow.kind {
            Talk::Tcp => {
                let flags = match self.rng.index(100) {
                    0..35 => SYN,
                    35..70 => ACK,
                    70..82 => FIN | ACK,
                    82..90 => RST,
                    90..93 => RST | ACK,
                    93..95 => SYN | ACK,
                    95..97 => SYN | FIN,
                    97..98 => SYN | RST,
                    _ => 0x18 | ACK,
                };
                build::tcp().tcp_flags(flags).from(from).to(to)
            }
            Talk::Udp => build::udp().from(from).to(to),
            Talk::Echo if self.rng.permille(850) => {
                build::echo_request(flow.client_port, 1).from(&flow.client).to(&flow.vip)
            }
            Talk::Echo => build::echo_reply(flow.client_port, 1).from(&flow.client).to(&flow.vip),
            Talk::Other(number) => {
                build::protocol(number).from(&flow.client).to(&flow.vip).payload([9; 12])
            }
        }
    }

    /// A service's answer.
    pub fn answer(&mut self, flow: &Flow) -> PacketBuilder {
        let (from, to) = (end(&flow.vip, flow.vip_port), end(&flow.client, flow.client_port));
        match flow.kind {
            Talk::Tcp => {
                let flags = match self.rng.index(100) {
                    0..45 => SYN | ACK,
                    45..70 => ACK,
                    70..90 => FIN | ACK,
                    90..97 => RST,
                    97..98 => SYN,
                    _ => SYN | ACK | FIN,
                };
                let options = self.tcp_options();
                build::tcp().tcp_flags(flags).tcp_options(&options).from(from).to(to)
            }
            Talk::Udp => build::udp().from(from).to(to),
            Talk::Echo => build::echo_reply(flow.client_port, 1).from(&flow.vip).to(&flow.client),
            Talk::Other(number) => {
                build::protocol(number).from(&flow.vip).to(&flow.client).payload([9; 12])
            }
        }
    }

    fn tcp_options(&mut self) -> Vec<u8> {
        let mss = pick(&mut self.rng, &[536, 1200, 1220, 1400, 1440, 1460, 8960_u16]).to_be_bytes();
        match self.rng.index(6) {
            0 => Vec::new(),
            1 => vec![1, 3, 3, 7],
            2 => vec![1, 2, 4, mss[0], mss[1], 1, 4, 2],
            3 => vec![1, 1, 2, 4, mss[0], mss[1], 0, 9],
            4 => vec![3, 3, 7, 2, 4, mss[0], mss[1], 0],
            _ => vec![2, 4, mss[0], mss[1]],
        }
    }

    /// Varies header fields other than addresses and ports, and the lengths.
    pub fn dressed(
        &mut self,
        builder: PacketBuilder,
        is_v6: bool,
        may_hide: bool,
    ) -> PacketBuilder {
        let rng = &mut self.rng;
        let mut builder = builder;
        if rng.permille(200) {
            builder = builder.tos(rng.index(256) as u8);
        }
        if rng.permille(350) {
            builder = builder.dont_fragment();
        }
        builder = match rng.index(100) {
            0..3 if may_hide => builder.ttl(rng.index(2) as u8),
            3..8 => builder.ttl(2),
            _ => builder.identification(rng.index(40) as u16),
        };
        if is_v6 && rng.permille(80) {
            // Only padding, or an encapsulation limit: none, some, or in the middle of others.
            const OPTIONS: [[u8; 6]; 4] =
                [[1, 4, 0, 0, 0, 0], [4, 1, 0, 1, 1, 0], [4, 1, 3, 1, 1, 0], [0, 1, 0, 4, 1, 0]];
            builder = builder.extension(60, &pick(rng, &OPTIONS));
        }
        if !is_v6 && rng.permille(60) {
            builder = builder.ipv4_options(&[0x94, 4, 0, 0, 7, 4, 4, 0]);
        }
        self.linked(builder)
    }

    /// VLAN tags and padding.
    fn linked(&mut self, builder: PacketBuilder) -> PacketBuilder {
        match self.rng.index(100) {
            0..5 => builder.vlan(7),
            5..8 => builder.qinq(7, 8),
            8..16 => builder.padded(),
            _ => builder,
        }
    }

    fn payload(&mut self) -> Vec<u8> {
        let bytes = if self.rng.permille(900) { self.rng.index(40) } else { self.rng.index(1100) };
        vec![self.rng.index(256) as u8; bytes]
    }

    fn request(&mut self) -> Vec<u8> {
        let flow = self.flow();
        let (builder, payload) = (self.talk(&flow), self.payload());
        let may_hide = self.may_hide();
        let mut builder = self.dressed(builder.payload(payload), flow.is_v6, may_hide);
        if may_hide && self.rng.permille(8) {
            let sources: &[&str] = if flow.is_v6 {
                &["::", "::1", "ff02::1"]
            } else {
                &["0.0.0.0", "127.0.0.1", "224.0.0.5", "240.0.0.1", "255.255.255.255"]
            };
            let source = pick(&mut self.rng, sources);
            builder = builder.from(source).ttl(1);
        }
        let mut frame = builder.build();
        if flow.kind == Talk::Echo && self.rng.permille(60) {
            // Usually in the message, which makes its checksum wrong.
            *frame.last_mut().expect("a frame") ^= 0x10;
        }
        frame
    }

    /// A packet from a service to a client, in a backend's tunnel.
    fn reply(&mut self) -> Vec<u8> {
        let flow = self.flow();
        let (builder, payload) = (self.answer(&flow), self.payload());
        let builder =
            if matches!(flow.kind, Talk::Other(_)) { builder } else { builder.payload(payload) };
        let builder = self.dressed(builder, flow.is_v6, true);
        let inner = builder.build();
        let source = self.backend();
        self.tunnel(&inner, &source)
    }

    /// The sender of a tunnel packet: mostly a backend, or a peer.
    pub fn backend(&mut self) -> String {
        let service = &self.services[self.rng.index(self.services.len())];
        if !service.backends.is_empty() && self.rng.permille(900) {
            return service.backends[self.rng.index(service.backends.len())].address.to_string();
        }
        let others =
            ["10.9.9.9", "10.9.9.9", "2001:db8:9::9", "2001:db8:9::9", "10.0.0.3", "10.9.8.9"];
        pick(&mut self.rng, &others).to_owned()
    }

    /// The packet of a frame in a tunnel from `source` to an own address of its family.
    pub fn tunnel(&mut self, inner: &[u8], source: &str) -> Vec<u8> {
        let destination = if source.contains(':') { OWN_V6 } else { OWN_V4 };
        let destination = match self.rng.permille(80) && !source.contains(':') {
            true => "203.0.113.9",
            false => destination,
        };
        self.tunnel_to(inner, source, destination).build()
    }

    pub fn tunnel_to(&mut self, inner: &[u8], source: &str, destination: &str) -> PacketBuilder {
        let l3_offset = hotloop::packet::ethernet::l3_offset(inner).expect("a whole frame");
        let mut packet = inner[l3_offset..].to_vec();
        if self.rng.permille(50) {
            // Bytes after the inner packet.
            packet.extend([0; 3]);
        }
        let protocol = if inner[l3_offset] >> 4 == 4 { 4 } else { 41 };
        let mut builder = build::protocol(protocol).from(source).to(destination).payload(packet);
        if self.rng.permille(250) {
            builder = builder.tos(self.rng.index(256) as u8);
        }
        if self.rng.permille(60) {
            builder = match source.contains(':') {
                true => builder.extension(60, &[1, 4, 0, 0, 0, 0]),
                false => builder.ipv4_options(&[1, 1, 1, 0]),
            };
        }
        self.linked(builder)
    }

    /// A client's packet that another balancer sends on.
    fn tunnelled_request(&mut self) -> Vec<u8> {
        let inner = self.request();
        let source = pick(&mut self.rng, &["10.9.9.1", "2001:db8:9::1"]);
        self.tunnel(&inner, source)
    }

    /// A packet that is about as long as the maximum, or longer.
    fn too_big(&mut self) -> Vec<u8> {
        let mut flow = self.flow();
        if flow.kind == Talk::Echo {
            flow.kind = Talk::Udp;
        }
        let header_bytes =
            if flow.is_v6 { 40 } else { 20 } + if flow.kind == Talk::Tcp { 20 } else { 8 };
        let outer_bytes = if self.rng.permille(500) { 20 } else { 40 };
        let fitting = self.mtu - outer_bytes - header_bytes;
        let bytes = match self.rng.index(10) {
            0..7 => fitting - 2 + self.rng.index(5),
            7..9 => fitting + self.rng.index(60),
            _ => fitting + self.rng.index(2500),
        };
        // A drop would hide the choice.
        let forbids = self.may_hide() || !flow.is_v6;
        let builder = self.talk(&flow).payload(vec![1; if forbids { bytes } else { 40 }]);
        let builder = self.dressed(builder, flow.is_v6, self.may_hide());
        if self.may_hide() { builder.build() } else { without_dont_fragment(builder.build()) }
    }
}

/// The frame without the flag that forbids fragments.
fn without_dont_fragment(mut frame: Vec<u8>) -> Vec<u8> {
    let l3_offset = hotloop::packet::ethernet::l3_offset(&frame).expect("a whole frame");
    if frame[l3_offset] >> 4 == 4 && frame[l3_offset + 6] & 0x40 != 0 {
        super::wire::change_v4(&mut frame[l3_offset..], |packet| packet[6] &= !0x40);
    }
    frame
}

/// An address and a port, as text.
pub fn end(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}
