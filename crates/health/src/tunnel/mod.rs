//! Probes through the tunnels: TCP and HTTP to a VIP, wrapped to one backend like clients' packets.
//!
//! Each probe is a client of its own: a TCP connection from the probe source to the VIP, made with
//! smoltcp. Its packets are wrapped here, and leave by a worker's port. The worker that gets a
//! packet to the probe source takes it out of the traffic, and the packet's port identifies its
//! probe.
//!
//! The packet path makes no system call to wake this thread, so this thread polls for replies every
//! [`POLL_INTERVAL`] while any probe is under way. Replies are not believed blindly: TCP's sequence numbers
//! are random. An ICMP error, which any host can send, is only remembered as the reason in case the
//! probe fails (RFC 5461, section 2).

mod channel;
mod icmp;
mod stream;

pub use channel::ProbeChannel;
pub use icmp::ICMP;

use crate::deadline::Deadline;
use crate::http::Exchange;
use crate::settings::{Probe, TunnelPath};
use crate::{Outcome, Probed};
use hotloop::packet::PacketBuf;
use hotloop::packet::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use hotloop::packet::ip::protocol;
use hotloop::packet::ipip::{Identifications, Tunnel};
use hotloop::packet::memory::MemPacket;
use hotloop::packet::own_header::OwnHeader;
use icmp::{About, IcmpError};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use stream::Stream;

/// Interval of polls for replies while probes are under way.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum number of probes under way at once: each has 6 KiB of buffers.
pub const TUNNEL_PROBES_MAX: usize = 4096;

/// The source ports of probes, in turn: a port is used again long after its last probe was
/// forgotten.
const PORTS: RangeInclusive<u16> = 32_768..=60_999;

/// The probes under way through tunnels.
#[derive(Debug)]
pub struct Tunnels {
    channel: ProbeChannel,
    under_way: HashMap<u64, UnderWay>,
    /// The number of the probe on each source port.
    numbers: HashMap<u16, u64>,
    next_port: u16,
    identifications: Identifications,
    /// The zero of smoltcp's clock.
    start: Instant,
    random: RandomState,
}

/// A probe under way.
#[derive(Debug)]
struct UnderWay {
    deadline: Deadline,
    port: u16,
    tunnel: Tunnel,
    stream: Stream,
    /// `None` if a connection is enough.
    exchange: Option<Exchange>,
    /// When the probe has work without a packet.
    next: Instant,
    /// The last ICMP error about this probe.
    error: Option<String>,
}

impl Tunnels {
    pub fn new(channel: ProbeChannel) -> Self {
        Self {
            channel,
            under_way: HashMap::new(),
            numbers: HashMap::new(),
            next_port: *PORTS.start(),
            identifications: Identifications::new(0, 1),
            start: Instant::now(),
            random: RandomState::new(),
        }
    }

    /// Starts a probe.
    ///
    /// # Errors
    /// The reason, in an operator's words.
    pub fn start(&mut self, number: u64, probed: &Probed, path: &TunnelPath) -> Result<(), String> {
        if self.under_way.len() >= TUNNEL_PROBES_MAX {
            let count = self.under_way.len();
            return Err(format!("{count} probes are under way through tunnels: probe less often"));
        }
        if self.under_way.is_empty() {
            // Frames that came since the last probe belong to no probe. This also provides room for
            // replies to the workers.
            self.channel.receive(|_| {});
        }
        let now = Instant::now();
        let port = self.port();
        let local = SocketAddr::new(path.probe_source, port);
        let vip = SocketAddr::new(path.vip, probed.health.port);
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(number);
        hasher.write_u16(port);
        let stream = Stream::connect(local, vip, hasher.finish(), self.time(now));
        let exchange = match &probed.health.probe {
            Probe::Http(probe) => Some(Exchange::new(probe, vip, 80)),
            _ => None,
        };
        let probe = UnderWay {
            deadline: Deadline::start(probed.health.timeout_ms),
            port,
            tunnel: path.tunnel(probed.address),
            stream: stream.map_err(|error| error.to_string())?,
            exchange,
            next: now,
            error: None,
        };
        self.numbers.insert(port, number);
        self.under_way.insert(number, probe);
        Ok(())
    }

    /// Ends the probes that are no longer needed.
    pub fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.under_way.retain(|number, _| is_kept(*number));
        self.numbers.retain(|_, number| is_kept(*number));
    }

    /// When to take the next [`turn`](Self::turn).
    pub fn next_turn(&self) -> Option<Instant> {
        (!self.under_way.is_empty()).then(|| Instant::now() + POLL_INTERVAL)
    }

    /// Continues all probes as far as the received packets allow, and reports each one that has
    /// ended.
    pub fn turn(&mut self, mut ended: impl FnMut(u64, Outcome)) {
        if self.under_way.is_empty() {
            return;
        }
        let Self { channel, under_way, numbers, .. } = self;
        let now = Instant::now();
        channel.receive(|frame| receive(frame, under_way, numbers, now));
        let time = self.time(now);
        let mut over = Vec::new();
        for (&number, probe) in &mut self.under_way {
            let end = probe.deadline.end();
            if probe.next > now && end > now {
                continue;
            }
            probe.stream.advance(time);
            let outcome = match probe.advance() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    (end <= now).then(|| Err(probe.why_late()))
                }
                Err(error) => Some(Err(probe.why(&error))),
                Ok(()) => Some(Ok(probe.deadline.elapsed())),
            };
            match outcome {
                Some(outcome) => {
                    probe.stream.abort(time);
                    over.push((number, outcome));
                }
                // Written data is sent at once.
                None => probe.stream.advance(time),
            }
            let next = probe.stream.next_time(time);
            probe.next = next.map_or(end, |after| now + Duration::from(after)).min(end);
            while let Some(packet) = probe.stream.sent() {
                if let Some(frame) = wrapped(&packet, &probe.tunnel, &mut self.identifications) {
                    self.channel.send(probe.port, &frame);
                }
            }
        }
        for (number, outcome) in over {
            if let Some(probe) = self.under_way.remove(&number) {
                self.numbers.remove(&probe.port);
            }
            ended(number, outcome);
        }
    }

    /// The next source port that no running probe uses. One always exists: there are fewer probes
    /// than ports.
    fn port(&mut self) -> u16 {
        loop {
            let port = self.next_port;
            self.next_port = if port == *PORTS.end() { *PORTS.start() } else { port + 1 };
            if !self.numbers.contains_key(&port) {
                return port;
            }
        }
    }

    fn time(&self, now: Instant) -> smoltcp::time::Instant {
        let since = now.saturating_duration_since(self.start);
        smoltcp::time::Instant::from_micros(since.as_micros() as i64)
    }
}

impl UnderWay {
    /// Continues as far as the connection allows: to the end of the probe, if there is no error.
    fn advance(&mut self) -> io::Result<()> {
        self.stream.connected()?;
        match &mut self.exchange {
            Some(exchange) => exchange.advance(&mut self.stream),
            None => Ok(()),
        }
    }

    fn why(&mut self, error: &io::Error) -> String {
        let is_connected = self.stream.connected().is_ok();
        let doing = if is_connected { "while waiting for an answer" } else { "while connecting" };
        match error.kind() {
            ErrorKind::Other => error.to_string(),
            _ => self.deadline.why(error, doing),
        }
    }

    /// The reason for a probe that timed out.
    fn why_late(&mut self) -> String {
        match self.error.take() {
            Some(error) => error,
            None => self.why(&ErrorKind::TimedOut.into()),
        }
    }
}

/// Passes a frame to its probe.
fn receive(
    frame: &[u8],
    under_way: &mut HashMap<u64, UnderWay>,
    numbers: &HashMap<u16, u64>,
    now: Instant,
) {
    let Some(header) = OwnHeader::of(frame) else { return };
    let number = |port: u16| numbers.get(&port).copied();
    if header.protocol == protocol::TCP {
        let port = frame.get(header.l4_offset + 2..).and_then(|bytes| bytes.first_chunk());
        let end = header.l3_offset + header.total_bytes;
        if let Some(packet) = frame.get(header.l3_offset..end)
            && let Some(number) = port.and_then(|bytes| number(u16::from_be_bytes(*bytes)))
            && let Some(probe) = under_way.get_mut(&number)
        {
            probe.stream.receive(packet);
            probe.next = now;
        }
    } else if let Some(IcmpError { why, about }) = IcmpError::read(frame, &header) {
        match about {
            About::Port(port) => {
                if let Some(probe) = number(port).and_then(|number| under_way.get_mut(&number)) {
                    probe.error = Some(why);
                }
            }
            About::Backend(backend) => {
                let to =
                    under_way.values_mut().filter(|probe| probe.tunnel.destination() == backend);
                to.for_each(|probe| probe.error = Some(why.clone()));
            }
        }
    }
}

/// A packet in its tunnel, as a frame whose addresses the port fills in.
fn wrapped(
    packet: &[u8],
    tunnel: &Tunnel,
    identifications: &mut Identifications,
) -> Option<Vec<u8>> {
    let ethertype = if packet.first()? >> 4 == 4 { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
    let frame = [&[0; 12], &ethertype.to_be_bytes()[..], packet].concat();
    let mut frame = MemPacket::new(&frame);
    tunnel.wrap_flow(&mut frame, &[0; 12], flow_hash(packet), identifications).ok()?;
    Some(frame.data().to_vec())
}

/// The hash that selects an address of a tunnel with a prefix as its source: a different one for
/// each probe.
fn flow_hash(packet: &[u8]) -> u32 {
    let l4_offset = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let port = packet.get(l4_offset..).and_then(|bytes| bytes.first_chunk()).copied();
    (hotloop_balancer::maglev::mixed(u16::from_be_bytes(port.unwrap_or_default()).into()) >> 32)
        as u32
}

impl TunnelPath {
    /// The tunnel to a backend.
    fn tunnel(&self, backend: IpAddr) -> Tunnel {
        let source = match backend {
            IpAddr::V4(_) => Some(self.source_v4),
            IpAddr::V6(_) => self.source_v6,
        };
        let source = source.expect("a configuration with a backend of IPv6 has source_v6");
        let source = (source.network(), source.len());
        Tunnel::spread(source, backend).expect("both ends are of the backend's family")
    }
}
