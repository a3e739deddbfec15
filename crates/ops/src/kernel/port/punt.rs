//! Why packets are punted, and how many may be.

use hotloop_packet::ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6};

/// A kind of packets that the kernel gets, each with a limit of its own: none takes what another needs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PuntReason {
    /// ARP, and IPv6's neighbour discovery and router advertisements (RFC 4861).
    Neighbour,
    /// What routing daemons say to each other: BGP, BFD, OSPF, VRRP.
    Routing,
    /// Other ICMP and ICMPv6: pings, errors.
    Icmp,
    /// Other packets for a station: ssh, for one.
    Host,
    /// Other packets for groups and for all.
    Group,
}

/// TCP's port of BGP (RFC 4271), and UDP's of BFD: one hop, echo (RFC 5881), several hops (RFC 5883).
const ROUTING_PORTS: [(u8, u16); 4] = [(TCP, 179), (UDP, 3_784), (UDP, 3_785), (UDP, 4_784)];

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// OSPF and VRRP have IP protocols of their own.
const ROUTING_PROTOCOLS: [u8; 2] = [89, 112];

impl PuntReason {
    /// Every kind, in the order of the enum.
    pub const ALL: [Self; 5] =
        [Self::Neighbour, Self::Routing, Self::Icmp, Self::Host, Self::Group];

    /// The kind of a frame, by its headers. Behind IPv6's extension headers nothing is looked for.
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        let is_group = frame.first().is_some_and(|byte| byte & 1 == 1);
        let other = if is_group { Self::Group } else { Self::Host };
        let Some((ethertype, offset)) = ethernet::network_layer(frame) else { return other };
        let packet = frame.get(offset..).unwrap_or(&[]);
        let (protocol, payload) = match ethertype {
            ETHERTYPE_ARP => return Self::Neighbour,
            ETHERTYPE_IPV4 if packet.len() >= 20 => (packet[9], usize::from(packet[0] & 0xf) * 4),
            ETHERTYPE_IPV6 if packet.len() >= 40 => (packet[6], 40),
            _ => return other,
        };
        let payload = packet.get(payload..).unwrap_or(&[]);
        let port = |at: usize| {
            let bytes = payload.get(at..)?.first_chunk::<2>()?;
            Some(u16::from_be_bytes(*bytes))
        };
        let is_routing = || {
            ROUTING_PROTOCOLS.contains(&protocol)
                || ROUTING_PORTS.iter().any(|(of, number)| {
                    *of == protocol && [port(0), port(2)].contains(&Some(*number))
                })
        };
        match protocol {
            // RFC 4861, section 4: types 133 to 137.
            ICMPV6 if payload.first().is_some_and(|kind| (133..=137).contains(kind)) => {
                Self::Neighbour
            }
            ICMP | ICMPV6 => Self::Icmp,
            _ if is_routing() => Self::Routing,
            _ => other,
        }
    }

    /// Its name, as in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Neighbour => "neighbour",
            Self::Routing => "routing",
            Self::Icmp => "icmp",
            Self::Host => "host",
            Self::Group => "group",
        }
    }
}

/// How many packets of a kind a core may punt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PuntLimit {
    /// Packets per second, on average. 0 lets none through.
    pub per_second: u32,
    /// Packets at once, after a pause.
    pub burst: u32,
}

/// The limit of each kind, for each core by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PuntLimits([PuntLimit; PuntReason::ALL.len()]);

impl PuntLimits {
    /// The same limit for every kind.
    #[must_use]
    pub const fn all(limit: PuntLimit) -> Self {
        Self([limit; PuntReason::ALL.len()])
    }

    /// With another limit for one kind.
    #[must_use]
    pub const fn with(mut self, reason: PuntReason, limit: PuntLimit) -> Self {
        self.0[reason as usize] = limit;
        self
    }

    /// The limit of a kind.
    #[must_use]
    pub const fn of(&self, reason: PuntReason) -> PuntLimit {
        self.0[reason as usize]
    }
}

impl Default for PuntLimits {
    /// 10,000 packets per second of what routing daemons say, 100,000 for the host, 1,000 of each
    /// other kind; after a pause, those of a second at once.
    fn default() -> Self {
        let limit = |per_second| PuntLimit { per_second, burst: per_second };
        Self::all(limit(1_000))
            .with(PuntReason::Routing, limit(10_000))
            .with(PuntReason::Host, limit(100_000))
    }
}

const SECOND_NS: u64 = 1_000_000_000;

/// A token bucket, kept as the time at which it will be full (GCRA, ITU-T I.371).
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// The time in which one packet's token comes.
    interval_ns: u64,
    /// The time in which the bucket fills.
    depth_ns: u64,
    full_ns: u64,
}

impl Bucket {
    pub(super) fn new(limit: PuntLimit) -> Self {
        let Some(interval_ns) = SECOND_NS.checked_div(limit.per_second.into()) else {
            return Self { interval_ns: 1, depth_ns: 0, full_ns: 0 };
        };
        let depth_ns = interval_ns * u64::from(limit.burst.max(1));
        Self { interval_ns, depth_ns, full_ns: 0 }
    }

    /// Whether one more packet may pass at this time, which never goes back.
    pub(super) fn take(&mut self, now_ns: u64) -> bool {
        let full_ns = self.full_ns.max(now_ns) + self.interval_ns;
        let passes = full_ns - now_ns <= self.depth_ns;
        if passes {
            self.full_ns = full_ns;
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_packet::build::{echo_request, protocol, tcp, udp};
    use hotloop_packet::ethernet::MacAddress;
    use hotloop_packet::memory::MemPacket;
    use hotloop_packet::{PacketBuf, arp, nd};

    #[test]
    fn kinds_are_known_by_headers() {
        let made = |write: &dyn Fn(&mut MemPacket)| {
            let mut packet = MemPacket::with_room(&[], 0, 200);
            write(&mut packet);
            packet.data().to_vec()
        };
        let mac = MacAddress::new([2, 0, 0, 0, 0, 1]);
        let own = arp::Neighbour { mac, address: [192, 0, 2, 1].into() };
        let asked = made(&|packet| arp::request(packet, own, [192, 0, 2, 2].into()).unwrap());
        let (one, other) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        let solicited = made(&|packet| nd::solicit(packet, (one, mac), other).unwrap());
        let mut to_all = udp().build();
        to_all[..6].copy_from_slice(&MacAddress::BROADCAST.bytes());
        let v6 =
            |port: u16| tcp().from("[2001:db8::1]:9").to(format!("[2001:db8::2]:{port}")).build();
        for (frame, expected) in [
            (asked, PuntReason::Neighbour),
            (solicited, PuntReason::Neighbour),
            (tcp().to("192.0.2.1:179").build(), PuntReason::Routing),
            (tcp().from("192.0.2.1:179").build(), PuntReason::Routing),
            (udp().to("192.0.2.1:179").build(), PuntReason::Host),
            (udp().to("192.0.2.1:3784").build(), PuntReason::Routing),
            (v6(179), PuntReason::Routing),
            (protocol(112).build(), PuntReason::Routing),
            (echo_request(1, 1).build(), PuntReason::Icmp),
            (v6(22), PuntReason::Host),
            (to_all, PuntReason::Group),
            (vec![1], PuntReason::Group),
            (vec![], PuntReason::Host),
        ] {
            assert_eq!(PuntReason::of(&frame), expected, "{frame:02x?}");
            // Cut off anywhere, it is still some kind.
            assert!((0..frame.len()).all(|len| !PuntReason::of(&frame[..len]).name().is_empty()));
        }
    }

    #[test]
    fn a_bucket_lets_its_burst_through_and_then_its_rate() {
        let mut bucket = Bucket::new(PuntLimit { per_second: 1_000, burst: 10 });
        let mut passed = |now_ns| (0..100).filter(|_| bucket.take(now_ns)).count();
        assert_eq!(passed(5 * SECOND_NS), 10);
        assert_eq!(passed(5 * SECOND_NS), 0);
        assert_eq!(passed(5 * SECOND_NS + 3_500_000), 3);
        assert_eq!(passed(5 * SECOND_NS + 4_000_000), 1);
        // No more than the burst comes together.
        assert_eq!(passed(9 * SECOND_NS), 10);
    }

    #[test]
    fn limits_at_their_ends() {
        let passed = |per_second, burst| {
            let mut bucket = Bucket::new(PuntLimit { per_second, burst });
            (0..1_000).filter(|now_ns| bucket.take(*now_ns)).count()
        };
        assert_eq!(passed(0, 100), 0);
        assert_eq!(passed(1, 0), 1);
        assert_eq!(passed(1_000_000_000, 1), 1_000);
        assert!(passed(u32::MAX, u32::MAX) == 1_000);
        let limits =
            PuntLimits::default().with(PuntReason::Icmp, PuntLimit { per_second: 7, burst: 1 });
        assert_eq!(limits.of(PuntReason::Icmp).per_second, 7);
        assert_eq!(limits.of(PuntReason::Group).per_second, 1_000);
    }
}
