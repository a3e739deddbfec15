//! The rules in sequence, as they are documented.

use super::deliver::Error;
use super::net::{Net, Target, seed};
use super::packet::{Packet, is_single_host};
use super::table::{Connection, Errors, Listed, Waiting, Window};
use super::wire::{self, IPV4, IPV6, Ip, Piece, TCP, UDP, is_quoting};
use hotloop::packet::classify::{Depth, Kind, Summary};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::seed::Seed;
use hotloop_balancer::spec::IcmpEcho;
use ipip_lb::config::Config;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

/// A received frame.
#[derive(Clone, Debug)]
pub struct Input {
    pub frame: Vec<u8>,
    pub headroom_bytes: usize,
}

/// A sent frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sent {
    pub to_client: bool,
    pub frame: Vec<u8>,
}

/// The stations at both ends of frames.
#[derive(Clone, Copy, Debug)]
pub struct Stations {
    pub client: ([u8; 6], [u8; 6]),
    pub backend: ([u8; 6], [u8; 6]),
}

/// The outcome of a burst's packets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    pub sent: Vec<Sent>,
    pub dropped: BTreeMap<&'static str, u64>,
    pub created: u64,
    pub admitted: u64,
    pub stateless: u64,
    pub to_clients: u64,
    pub replies_known: u64,
    pub answered: u64,
}

/// A worker, as slow and simple as can be.
#[derive(Debug)]
pub struct Model {
    pub net: Net,
    pub now: u64,
    pub connections: HashMap<FlowKey, Connection>,
    /// For a service's client: its backend, and the time of its last new connection.
    pub kept: HashMap<(super::net::ServiceId, IpAddr), (Target, u64)>,
    pub credits: HashMap<Target, i64>,
    /// The targets of first fragments with their times, in order of arrival.
    pub remembered: VecDeque<(Datagram, Target, u64)>,
    pub waiting: Vec<Waiting>,
    pub new_connections: Window,
    /// Errors about packets that are too big, and others.
    pub errors: [Errors; 2],
    pub outcome: Outcome,
    /// Number of times that each rule occurred.
    pub met: BTreeMap<&'static str, u64>,
    /// The balancer's output for the current burst, which the model follows if the rules leave a
    /// choice.
    pub observed: Vec<Sent>,
    /// The balancer's table at the last comparison.
    pub listing: HashMap<FlowKey, Listed>,
    /// The bytes that identify the current packet.
    at_hand: Vec<u8>,
    pub stations: Stations,
    seed: Seed,
    /// The number of workers, and the index of this one.
    pub workers: (usize, usize),
    pub identification: u16,
}

/// The values that the fragments of a datagram have in common.
pub type Datagram = (IpAddr, IpAddr, (u8, u32));

impl Model {
    pub fn new(config: &Config, stations: Stations, workers: (usize, usize)) -> Self {
        Self {
            net: Net::new(config),
            now: 0,
            connections: HashMap::new(),
            kept: HashMap::new(),
            credits: HashMap::new(),
            remembered: VecDeque::new(),
            waiting: Vec::new(),
            new_connections: Window::default(),
            errors: Default::default(),
            outcome: Outcome::default(),
            met: BTreeMap::new(),
            observed: Vec::new(),
            listing: HashMap::new(),
            at_hand: Vec::new(),
            stations,
            seed: seed(&config.balancer),
            workers,
            identification: 0,
        }
    }

    pub fn met(&mut self, rule: &'static str) {
        *self.met.entry(rule).or_default() += 1;
    }

    pub fn dropped(&mut self, reason: &'static str) {
        *self.outcome.dropped.entry(reason).or_default() += 1;
        self.met(reason);
    }

    /// The backend to which the balancer sent the current packet, if any.
    pub fn observed_destination(&self) -> Option<IpAddr> {
        let sent = self.observed.get(self.outcome.sent.len()).filter(|it| !it.to_client)?;
        let mut packet = Packet::of(&sent.frame, 0);
        let destination = packet.ip().destination;
        packet.bytes.drain(..packet.ip().header_bytes);
        (identity(&packet) == self.at_hand).then_some(destination)
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        let before = self.waiting.len();
        self.waiting.retain(|it| now - it.since < 1_000_000_000);
        for _ in self.waiting.len()..before {
            self.met("fragment: waited too long");
            self.dropped("fragment_orphan");
        }
    }

    /// The end: waiting fragments are dropped.
    pub fn finish(&mut self) {
        for _ in std::mem::take(&mut self.waiting) {
            self.dropped("fragment_orphan");
        }
    }

    /// Rules 1 and 2.
    pub fn packet(&mut self, input: &Input) {
        match Summary::of(&input.frame, input.frame.len(), Depth::Innermost).kind {
            Kind::Malformed(_) if wire::ends_within_its_packet(&input.frame) => {
                return self.dropped("truncated");
            }
            Kind::Malformed(_) => return self.dropped("malformed"),
            Kind::Arp | Kind::Other => return self.dropped("punt"),
            Kind::Ipv4 | Kind::Ipv6 => {}
        }
        let mut packet = Packet::of(&input.frame, input.headroom_bytes);
        let own = packet.ip();
        let is_unwrapped = self.net.is_own(own.destination) && matches!(own.protocol, IPV4 | IPV6);
        if is_unwrapped {
            if !self.net.may_tunnel(own.source) {
                return self.dropped("unknown_tunnel_source");
            }
            if let Err(reason) = packet.unwrap() {
                return self.dropped(reason);
            }
            self.met("unwrapped");
            let inner = packet.ip();
            if !is_single_host(inner.source) {
                return self.dropped("martian_source");
            }
            if !is_single_host(inner.destination) {
                return self.dropped("martian_destination");
            }
            if packet.is_tunnel() {
                self.met("unwrapped: a nested tunnel");
                // From here on it is a packet like any other, so its payload counts.
                let frame = packet.clone().frame(self.stations.client);
                if let Kind::Malformed(_) = Summary::of(&frame, frame.len(), Depth::Innermost).kind
                {
                    return self.dropped("malformed");
                }
            }
        }
        let hash = self.seed.hash(&layout_key(&packet));
        self.bare(packet, hash, is_unwrapped);
    }

    /// Rules 3 and 4.
    fn bare(&mut self, packet: Packet, hash: u32, is_tunnelled: bool) {
        self.at_hand = identity(&packet);
        let ip = packet.ip();
        let is_to_vip = self.net.is_vip(ip.destination);
        let kind = packet.icmp_kind();
        if kind.is_some_and(|kind| is_quoting(kind, ip.is_v6())) {
            if !ip.is_v6() && matches!(kind, Some(4 | 5)) {
                self.met("icmp: redirect or quench");
                return self.dropped("punt");
            }
            let (quoted, ports) = Ip::read_quote(&packet.payload()[8..], ip.is_v6());
            if ip.destination != quoted.source {
                self.met("icmp error: to somebody else");
                return self.dropped(if is_to_vip { "no_service" } else { "punt" });
            }
            if is_to_vip {
                let key = quoted.key(ports).reversed();
                return self.error_about(packet, &key, hash, is_tunnelled);
            }
        }
        if ip.is_v6() && matches!(kind, Some(130..=137 | 143)) {
            self.met("icmp: neighbours");
            return self.dropped("punt");
        }
        if is_to_vip {
            self.for_vip(packet, hash, is_tunnelled);
        } else if is_tunnelled && self.net.is_vip(ip.source) {
            self.for_client(packet);
        } else {
            self.dropped("punt");
        }
    }

    /// Rule 3: an error about a service's packet, whose connection has this key.
    fn error_about(&mut self, packet: Packet, key: &FlowKey, hash: u32, is_tunnelled: bool) {
        if self.is_refused(&packet, is_tunnelled) {
            return;
        }
        let router = packet.ip().source;
        match self.target_of_error(key, hash) {
            Err(reason) => return self.dropped(reason),
            Ok(Some(target)) if target.address == router => return self.dropped("tunnel_loop"),
            Ok(Some(target)) => {
                self.met("icmp error: of a connection");
                return self.deliver(packet, target, hash);
            }
            Ok(None) => {}
        }
        let service = self.service_of_key(key);
        let Some(service) = service else { return self.dropped("no_service") };
        match self.consistent(service, key.source(), hash) {
            Ok(target) if target.address == router => self.dropped("tunnel_loop"),
            Ok(target) => {
                self.met("icmp error: by hash");
                self.deliver(packet, target, hash);
            }
            Err(reason) => self.dropped(reason),
        }
    }

    pub fn hash(&self, key: &FlowKey) -> u32 {
        self.seed.hash(key)
    }

    /// Rule 5, for the flow of a quoted packet.
    pub fn service_of_key(&self, key: &FlowKey) -> Option<usize> {
        self.net.service(key.destination(), key.protocol(), key.destination_port())
    }

    /// Rule 5, and then 6, 7 or 10.
    fn for_vip(&mut self, packet: Packet, hash: u32, is_tunnelled: bool) {
        let ip = packet.ip();
        let request = if ip.is_v6() { 128 } else { 8 };
        let is_echo =
            ip.is_icmp() && ip.piece != Piece::Whole || packet.icmp_kind() == Some(request);
        let mode = self.net.balancer.icmp_echo;
        if is_echo && mode != IcmpEcho::Forward {
            let is_answered = mode == IcmpEcho::Reply && ip.piece == Piece::Whole;
            let reply = if is_answered { packet.echo_reply() } else { Ok(None) };
            self.dropped(reply.as_ref().err().unwrap_or(&"icmp_echo"));
            match reply {
                Ok(Some(reply)) => {
                    self.met("icmp echo: answered");
                    self.answer(reply);
                }
                Ok(None) => {}
                Err(_) => self.met("icmp echo: wrong checksum"),
            }
            return;
        }
        if self.is_refused(&packet, is_tunnelled) {
            return;
        }
        if ip.piece == Piece::Later {
            return self.later_fragment(packet, hash);
        }
        let key = ip.key(packet.payload());
        let mut service = self.service_of_key(&key);
        if is_echo && service.is_none() {
            service = self.net.any_of(ip.destination);
            self.met("icmp echo: to the VIP's most specific service");
        }
        let target = if packet.is_tunnel() {
            self.met("tunnel to a VIP");
            let Some(service) = service else { return self.dropped("no_service") };
            self.consistent(service, ip.source, hash)
        } else {
            let flags = (ip.protocol == TCP).then(|| packet.payload()[13]);
            self.connected(&key, service, hash, flags)
        };
        match target {
            Ok(target) if ip.piece == Piece::First => self.first_fragment(packet, target, hash),
            Ok(target) => self.deliver(packet, target, hash),
            Err(reason) => self.dropped(reason),
        }
    }

    /// Rule 11: whether a packet may not be wrapped, wherever it would go.
    fn is_refused(&mut self, packet: &Packet, is_tunnelled: bool) -> bool {
        let ip = packet.ip();
        let reason = if !is_single_host(ip.source) {
            "martian_source"
        } else if !is_single_host(ip.destination) {
            "martian_destination"
        } else if self.net.is_entry(ip.source) || self.is_looping(packet, 1) {
            "tunnel_loop"
        } else if let Some(pointer) = packet.spent_limit() {
            self.error(packet, Error::Limit { pointer });
            // In a tunnel it would not be looked up before it is known to go nowhere.
            if !is_tunnelled && ip.piece == Piece::Whole && matches!(ip.protocol, TCP | UDP) {
                self.seen(&ip.key(packet.payload()));
            }
            "encapsulation_limit"
        } else {
            return false;
        };
        self.dropped(reason);
        true
    }

    /// Whether one of the packet's tunnels begins here, or there are four of them. `depth` is the
    /// outermost one's.
    fn is_looping(&self, packet: &Packet, depth: usize) -> bool {
        let ip = packet.ip();
        if ip.piece == Piece::Later || !matches!(ip.protocol, IPV4 | IPV6) {
            return false;
        }
        let Some(inner) = packet.inner() else { return false };
        self.net.is_entry(inner.ip().source) || depth >= 4 || self.is_looping(&inner, depth + 1)
    }

    /// Rule 6: a fragment with ports.
    fn first_fragment(&mut self, packet: Packet, target: Target, hash: u32) {
        let ip = packet.ip();
        let datagram = (ip.source, ip.destination, ip.datagram);
        self.remember(datagram, target);
        self.deliver(packet, target, hash);
        let all = std::mem::take(&mut self.waiting);
        let (released, waiting): (Vec<_>, _) =
            all.into_iter().partition(|it| it.datagram == datagram);
        self.waiting = waiting;
        for fragment in released {
            self.met("fragment: released");
            self.deliver(fragment.packet, target, fragment.hash);
        }
    }

    /// Rule 6: a fragment without ports.
    fn later_fragment(&mut self, packet: Packet, hash: u32) {
        let ip = packet.ip();
        let datagram = (ip.source, ip.destination, ip.datagram);
        if let Some(target) = self.remembered_target(datagram) {
            if self.net.exists(target) {
                self.met("fragment: after its first");
                return self.deliver(packet, target, hash);
            }
            self.met("fragment: its backend is gone");
            let is_flushed = self.net.flushed.contains(&target);
            return self.dropped(if is_flushed { "flushed" } else { "no_backend" });
        }
        if self.waiting.len() >= 256 {
            self.met("fragment: waited longest of too many");
            self.waiting.remove(0);
            self.dropped("fragment_orphan");
        }
        self.met("fragment: waits");
        self.waiting.push(Waiting { datagram, since: self.now, hash, packet });
    }
}

/// The addresses, the protocol, and the first bytes of the payload: they are the same for a packet
/// and its first fragment.
fn identity(packet: &Packet) -> Vec<u8> {
    let ip = packet.ip();
    let start = packet.payload().iter().take(8).copied().collect();
    [format!("{} {} {}", ip.source, ip.destination, ip.protocol).into_bytes(), start].concat()
}

/// The key of the flow by classification: the inner packet's in a tunnel, or the quoted packet's in
/// an ICMP error.
fn layout_key(packet: &Packet) -> FlowKey {
    let mut packet = packet.clone();
    if packet.is_tunnel() {
        packet.bytes.drain(..packet.ip().header_bytes);
        packet.bytes.truncate(packet.ip().total_bytes);
    }
    let ip = packet.ip();
    match packet.icmp_kind() {
        Some(kind) if is_quoting(kind, ip.is_v6()) => {
            let (quoted, ports) = Ip::read_quote(&packet.payload()[8..], ip.is_v6());
            quoted.key(ports)
        }
        _ => ip.key(packet.payload()),
    }
}
