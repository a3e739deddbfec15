//! Random packets that are less usual: fragments, errors, tunnels within tunnels, and rubbish.

use super::scene::{OWN_V4, OWN_V6, pick};
use super::traffic::{Flow, Talk, Traffic};
use hotloop::packet::build;

impl Traffic {
    /// One of a datagram's fragments: they come in any order, some twice, some never.
    pub fn fragment(&mut self) -> Vec<u8> {
        if self.pending.len() < 24 && self.rng.permille(450) {
            let frames = self.datagram();
            self.pending.extend(frames);
        }
        if self.pending.is_empty() {
            return self.stranger();
        }
        let at = self.rng.index(self.pending.len());
        match self.rng.index(100) {
            0..10 => self.pending[at].clone(),
            10..15 if self.pending.len() > 1 => {
                self.pending.swap_remove(at);
                let at = self.rng.index(self.pending.len());
                self.pending.swap_remove(at)
            }
            // Most come approximately in order.
            15..60 => self.pending.remove(0),
            _ => self.pending.swap_remove(at),
        }
    }

    fn datagram(&mut self) -> Vec<Vec<u8>> {
        let flow = self.flow();
        let is_reply = self.rng.permille(150);
        let mut builder = if is_reply { self.answer(&flow) } else { self.talk(&flow) };
        // Some fragments are too long again.
        let is_long = (self.may_hide() || !flow.is_v6) && self.rng.permille(100);
        let bytes = if is_long { 3000 } else { 300 + self.rng.index(1500) };
        builder = builder.payload(vec![3; bytes]).identification(self.rng.index(12) as u16);
        if self.rng.permille(100) {
            builder = builder.tos(self.rng.index(256) as u8);
        }
        if self.may_hide() && self.rng.permille(60) {
            builder = builder.ttl(1);
        }
        if flow.is_v6 && self.rng.permille(150) {
            // After the fragment header: fragments themselves name it, not the header after it.
            builder = builder.extension(60, &[1, 4, 0, 0, 0, 0]);
        }
        if !flow.is_v6 && self.rng.permille(80) {
            builder = builder.ipv4_options(&[0x94, 4, 0, 0, 7, 4, 4, 0]);
        }
        let mtu = if is_long { 1500 } else { 200 + self.rng.index(700) };
        let is_tunnelled = is_reply || self.rng.permille(120);
        let frames = builder.build_fragments(mtu);
        if !is_tunnelled {
            return frames;
        }
        let source = self.backend();
        frames.iter().map(|frame| self.tunnel(frame, &source)).collect()
    }

    /// An error about a service's packet, or about another one.
    pub fn icmp_error(&mut self) -> Vec<u8> {
        let flow = self.flow();
        let mut about = self.answer(&flow);
        let mut is_about_client = false;
        match self.rng.index(100) {
            0..80 => {}
            80..90 => {
                about = self.talk(&flow);
                is_about_client = true;
            }
            _ => about = about.from(if flow.is_v6 { "2001:db8:77::1" } else { "192.0.2.77" }),
        }
        let bytes = pick(&mut self.rng, &[0, 8, 100, 1000]);
        about = about.payload(vec![5; bytes]);
        let about = match self.rng.index(100) {
            0..85 => about.build(),
            _ => {
                let frames = about.build_fragments(300);
                frames[self.rng.index(frames.len())].clone()
            }
        };
        let mut error = match self.rng.index(12) {
            0..3 => build::unreachable(&about),
            3..6 => build::time_exceeded(&about),
            6..9 => build::too_big(&about, 1400),
            9 | 10 => build::parameter_problem(&about),
            _ if flow.is_v6 => build::too_big(&about, 1280),
            _ if self.rng.permille(500) => build::source_quench(&about),
            _ => build::redirect(&about, [192, 0, 2, 7].into()),
        };
        let header_bytes = if flow.is_v6 { 40 } else { 20 };
        error = match self.rng.index(10) {
            0 => error.quote_bytes(header_bytes + self.rng.index(8)),
            1 => error.quote_bytes(header_bytes + 8 + self.rng.index(20)),
            _ => error,
        };
        if self.may_hide() && self.rng.permille(60) {
            let router = if flow.is_v6 { "2001:db8:b::1" } else { "10.0.0.1" };
            error = error.from(router);
        }
        if self.rng.permille(100) {
            // To another address than the packet's source.
            let others: &[&str] = if flow.is_v6 {
                &["2001:db8:f::8", "2001:db8:c::1", OWN_V6]
            } else {
                &["203.0.113.8", "198.51.100.1", OWN_V4]
            };
            error = error.to(pick(&mut self.rng, others));
        }
        if is_about_client && self.rng.permille(700) {
            // From the service itself, on its way to the client.
            let error = self.dressed(error.from(&flow.vip), flow.is_v6, true).build();
            let source = self.backend();
            return self.tunnel(&error, &source);
        }
        let may_hide = self.may_hide();
        let error = self.dressed(error, flow.is_v6, may_hide).build();
        let source = self.backend();
        if self.rng.permille(150) { self.tunnel(&error, &source) } else { error }
    }

    /// Tunnels that don't end here, or not at once.
    pub fn foreign_tunnel(&mut self) -> Vec<u8> {
        let flow = self.flow();
        let inner = self.talk(&flow).payload([1; 20]).build();
        let elsewhere = self.flow();
        let middle = self.tunnel_to(&inner, &elsewhere.client, &elsewhere.vip);
        let source = self.backend();
        if self.rng.permille(120) {
            // Deeper and deeper, the last one to a service.
            let mut frame = inner;
            for _ in 0..self.rng.index(5) {
                let hop = self.flow();
                frame = self.tunnel_to(&frame, &hop.client, &hop.vip).build();
            }
            return self.tunnel_to(&frame, &elsewhere.client, &elsewhere.vip).build();
        }
        match self.rng.index(10) {
            0..4 => middle.build(),
            // A tunnel in a tunnel: to a service, to a client, to an own address.
            4..7 => {
                let middle = middle.build();
                self.tunnel(&middle, &source)
            }
            7 => {
                let middle = self.tunnel_to(&inner, &elsewhere.vip, &elsewhere.client).build();
                self.tunnel(&middle, &source)
            }
            8 => {
                let middle = self.tunnel(&inner, "10.0.0.1");
                self.tunnel(&middle, &source)
            }
            // An error inside a tunnel that isn't the balancer's.
            _ => {
                let about = self.answer(&flow).payload([1; 30]).build();
                let error = build::unreachable(&about).build();
                self.tunnel_to(&error, &elsewhere.client, &elsewhere.vip).build()
            }
        }
    }

    /// Tunnel packets to an own address that may not be unwrapped.
    pub fn bad_tunnel(&mut self) -> Vec<u8> {
        let flow = self.flow();
        let inner = self.answer(&flow).payload([1; 60]).build();
        let peer = pick(&mut self.rng, &["10.9.9.9", "2001:db8:9::9"]);
        match self.rng.index(6) {
            4 | 5 => {
                // Valid, except for addresses that no host has.
                let martians: &[&str] = match flow.is_v6 {
                    true => &["::", "::1", "ff02::1"],
                    false => &["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"],
                };
                let martian = pick(&mut self.rng, martians);
                let inner = self.answer(&flow).payload([1; 60]);
                let is_source = self.rng.permille(500);
                let inner = if is_source { inner.from(martian) } else { inner.to(martian) };
                self.tunnel(&inner.build(), peer)
            }
            0 => self.tunnel(&inner, pick_stranger(&flow)),
            1 => {
                let destination = if peer.contains(':') { OWN_V6 } else { OWN_V4 };
                let frames = self.tunnel_to(&inner, peer, destination).build_fragments(96);
                frames[self.rng.index(frames.len())].clone()
            }
            2 => {
                let mut frame = self.tunnel(&inner, "10.9.9.9");
                let l3_offset = hotloop::packet::ethernet::l3_offset(&frame).expect("a frame");
                frame[l3_offset + 10] ^= 1 + self.rng.index(255) as u8;
                frame
            }
            _ => self.tunnel_to(&inner, "10.9.9.9", OWN_V4).tos(3).build(),
        }
    }

    /// A frame with something wrong.
    pub fn broken(&mut self) -> Vec<u8> {
        let flow = self.flow();
        let mut frame = match self.rng.index(4) {
            0 => {
                let inner = self.answer(&flow).payload([1; 30]).build();
                self.tunnel(&inner, "10.9.9.9")
            }
            1 => {
                let about = self.answer(&flow).payload([1; 30]).build();
                build::unreachable(&about).build()
            }
            _ => self.talk(&flow).payload([1; 10]).build(),
        };
        match self.rng.index(4) {
            0 => frame.truncate(self.rng.index(frame.len())),
            1 => {
                // Not the addresses of the link, nor, mostly, the fields that make it IP.
                let at = 14 + self.rng.index(frame.len() - 14);
                frame[at] = self.rng.index(256) as u8;
            }
            _ => {
                let field =
                    pick(&mut self.rng, &[12, 13, 14, 16, 17, 18, 19, 20, 21, 23, 34, 35, 54]);
                let at = field.min(frame.len() - 1);
                frame[at] ^= 1 << self.rng.index(8);
            }
        }
        frame
    }

    /// A packet that belongs to no one here.
    pub fn stranger(&mut self) -> Vec<u8> {
        let flow = self.flow();
        match self.rng.index(6) {
            0 => build::arp_request([198, 51, 100, 1].into(), [203, 0, 113, 8].into()),
            1 => {
                let mut frame = vec![0x02; 60];
                frame[12..14].copy_from_slice(&[0x88, 0xCC]);
                frame
            }
            2 => self
                .talk(&flow)
                .to(if flow.is_v6 { "2001:db8:99::9" } else { "198.51.100.99" })
                .build(),
            3 => {
                // Between neighbours.
                let kind = pick(&mut self.rng, &[130, 131, 134, 135, 136, 143]);
                let mut message = vec![0; 24];
                message[0] = kind;
                let to = format!("2001:db8:f::{:x}", 8 + self.rng.index(8));
                let frame =
                    build::protocol(58).from("2001:db8:c::1").to(to).payload(message).build();
                if self.rng.permille(200) { self.tunnel(&frame, "10.9.9.9") } else { frame }
            }
            // From a client to a client, tunnelled by a backend.
            4 => {
                let (from, to) = if flow.is_v6 {
                    ("[2001:db8:c::1]:7", "[2001:db8:c::2]:7")
                } else {
                    ("198.51.100.1:7", "198.51.100.2:7")
                };
                let inner = build::udp().from(from).to(to).build();
                self.tunnel(&inner, "10.9.9.9")
            }
            _ => {
                let frame: Vec<u8> = (0..self.rng.index(80)).map(|it| it as u8 & !1).collect();
                frame
            }
        }
    }

    /// Later fragments of this many datagrams; no first fragment of them will come.
    pub fn orphan(&mut self, identification: u16) -> Vec<u8> {
        let flow = self.fragmented_flow();
        let builder = self.talk(&flow).payload([3; 400]).identification(identification);
        builder.build_fragments(200).pop().expect("three of them")
    }

    /// Packets of one network or of many, all of them with an expired TTL or too long to be sent
    /// on.
    pub fn unanswerable(&mut self, flow: &Flow, count: usize) -> Vec<Vec<u8>> {
        let network_count = pick(&mut self.rng, &[1, 5, 40]);
        let is_late = self.rng.permille(600);
        let of_network = |network: usize| {
            let client = match flow.is_v6 {
                true => format!("2001:db8:c:{network:x}::1"),
                false => format!("198.51.{}.1", 100 + network),
            };
            Flow { client, ..flow.clone() }
        };
        let packet = |it: usize| {
            let packet = self.talk(&of_network(it % network_count));
            match is_late {
                true => packet.ttl(1),
                false => packet.payload(vec![1; 1480]).dont_fragment(),
            }
        };
        (0..count).map(packet).map(|packet| packet.build()).collect()
    }

    /// The first and the last fragment of a datagram.
    pub fn first_and_last(&mut self, flow: &Flow, identification: u16) -> [Vec<u8>; 2] {
        let builder = self.talk(flow).payload([3; 160]).identification(identification);
        let mut frames = builder.build_fragments(160);
        let last = frames.pop().expect("two of them");
        [frames.swap_remove(0), last]
    }

    /// A flow for fragments that must be followed.
    pub fn fragmented_flow(&mut self) -> Flow {
        let flow = self.flow();
        if flow.kind == Talk::Echo { Flow { kind: Talk::Udp, ..flow } } else { flow }
    }
}

const fn pick_stranger(flow: &Flow) -> &'static str {
    if flow.is_v6 { "2001:db8:77::7" } else { "10.77.7.7" }
}
