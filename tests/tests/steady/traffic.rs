//! A round of frames that take every path through the balancer.

use hotloop::packet::build::{
    PacketBuilder, arp_request, echo_request, protocol, tcp, time_exceeded, udp, unreachable,
};
use hotloop::packet::checksum;

/// How a frame lies in its mbuf, and its varying part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Unchanged.
    Plain,
    /// From another client each time: a new flow.
    NewFlow,
    /// From the same client and another port each time: a new flow.
    NewPort,
    /// At the very beginning of the buffer, without headroom.
    NoHeadroom,
}

/// A frame of the round.
#[derive(Clone, Debug)]
pub struct Template {
    pub bytes: Vec<u8>,
    pub kind: Kind,
}

/// The configuration for the round.
pub const CONFIG: &str = r#"
    [balancer]
    source_v4 = "192.0.2.1"
    source_v6 = "2001:db8::1"
    mtu = 1500
    decapsulate = ["192.0.2.1", "2001:db8::1"]
    connections_max = 262144

    [[port]]
    name = "uplink"
    device = "net_null0"
    next_hop_mac = "02:00:00:00:09:02"

    [health]
    probe_source = ["192.0.2.9"]

    [limits]
    source_new_connections_per_second_max = 20

    [[service]]
    name = "web"
    address = "203.0.113.10"
    protocol = "any"
    ports = "80"
    backend = [{ address = "10.0.0.1" }, { address = "10.0.0.2" }]

    [[service]]
    name = "web6"
    address = "2001:db8:f::10"
    protocol = "tcp"
    ports = "80"
    backend = [{ address = "2001:db8:b::1" }, { address = "10.0.0.2" }]

    [[service]]
    name = "deserted"
    address = "203.0.113.20"
    protocol = "tcp"
    ports = "80"

    [[service]]
    name = "limited"
    address = "203.0.113.30"
    protocol = "udp"
    ports = "80"
    new_connections_per_second_max = 20
    backend = [{ address = "10.0.0.1" }]
"#;

/// Clients that are blocked.
pub const BLOCKED: &str = "198.18.0.0/15";

const CLIENT: &str = "198.51.100.7:4000";
const VIP: &str = "203.0.113.10:80";

fn request() -> PacketBuilder {
    tcp().from(CLIENT).to(VIP)
}

/// A backend's answer, in its tunnel.
fn reply() -> PacketBuilder {
    reply_to(CLIENT)
}

fn reply_to(client: &str) -> PacketBuilder {
    tcp().from(VIP).to(client).tunnelled("10.0.0.1", "192.0.2.1")
}

/// A packet that doesn't allow a tunnel around it: the option is in a header of destination
/// options.
fn limited() -> PacketBuilder {
    let request = tcp().from("[2001:db8:c::7]:9").to("[2001:db8:f::10]:80");
    request.extension(60, &[4, 1, 0, 1, 1, 0])
}

/// The backend's answer to a probe.
fn probe_reply() -> PacketBuilder {
    tcp().from(VIP).to("192.0.2.9:4000")
}

/// A probe in the form of health checks.
pub fn probe() -> Vec<u8> {
    tcp().from("192.0.2.9:4000").to(VIP).tunnelled("192.0.2.1", "10.0.0.1").build()
}

/// A tunnel packet that met congestion, which its inner packet can't show.
fn congested() -> Vec<u8> {
    let mut frame = reply().build();
    frame[15] |= 3;
    let sum = u16::from_be_bytes([frame[24], frame[25]]);
    frame[24..26].copy_from_slice(&checksum::update(sum, 0x4500, 0x4503).to_be_bytes());
    frame
}

/// A tunnel packet with a damaged header.
fn damaged() -> Vec<u8> {
    let mut frame = reply().build();
    frame[24] ^= 1;
    frame
}

/// The frames, in the order of a round. Each drop reason of the balancer has its own.
pub fn round() -> Vec<Template> {
    let plain = |frame: Vec<u8>| Template { bytes: frame, kind: Kind::Plain };
    let later_fragment = protocol(17).from(CLIENT).to("203.0.113.10").payload([0; 200]);
    let stranger = tcp().from(VIP).to(CLIENT).tunnelled("10.7.7.7", "192.0.2.1");
    let cut_tunnel = protocol(4).from("10.0.0.1").to("192.0.2.1").payload([0x45; 2000]);
    let whole = udp().from(CLIENT).to(VIP).identification(9).payload([0; 900]);
    let echo = echo_request(7, 1).from("198.51.100.7").to("203.0.113.10");
    let mut round = vec![
        plain(arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into())), // punt
        plain(request().build()[..30].to_vec()),                        // malformed
        plain(request().build()[..40].to_vec()),                        // truncated
        plain(later_fragment.build_fragments(100).remove(1)),           // fragment_orphan
        plain(cut_tunnel.build_fragments(1500).remove(0)),              // tunnel_fragment
        plain(echo.build()),                                            // icmp_echo, answered
        plain(stranger.build()),                                        // unknown_tunnel_source
        plain(damaged()),                                               // bad_checksum
        plain(congested()),                                             // congestion
        plain(tcp().from(CLIENT).to("203.0.113.10:81").build()),        // no_service
        Template { bytes: tcp().to("203.0.113.20:80").build(), kind: Kind::NewFlow }, // no_backend
        plain(request().ttl(1).build()),                                // ttl_expired
        plain(request().payload(vec![0; 1460]).dont_fragment().build()), // too_big, answered
        Template { bytes: request().build(), kind: Kind::NoHeadroom },  // no_headroom
        plain(request().from("192.0.2.1:9").build()),                   // tunnel_loop
        plain(request().from("127.0.0.1:9").build()),                   // martian_source
        plain(reply_to("255.255.255.255:9").build()),                   // martian_destination
        plain(limited().build()), // encapsulation_limit, answered
        plain(request().from("198.18.0.1:9").build()), // blocked
        Template { bytes: udp().from(CLIENT).to(VIP).build(), kind: Kind::NewPort }, // source_limit
        Template { bytes: udp().to("203.0.113.30:80").build(), kind: Kind::NewFlow }, // service_limit
        plain(probe_reply().build()),                                                 // probe_reply
        plain(probe_reply().payload(vec![0; 1700]).build()), // probe_reply_lost
        // Fragmented once wrapped, and fragments that follow their first.
        plain(request().payload(vec![0; 1460]).build()),
        plain(whole.clone().build_fragments(600).remove(0)),
        plain(whole.build_fragments(600).remove(1)),
        // To a client, to a backend through an error, and in a tunnel to a service.
        plain(reply().build()),
        plain(time_exceeded(&tcp().from(VIP).to(CLIENT).build()).build()),
        plain(unreachable(&tcp().from(VIP).to("198.51.100.9:9").build()).build()),
        plain(request().tunnelled("10.0.0.1", "192.0.2.1").build()),
    ];
    for index in 0..4 {
        round.push(Template { bytes: udp().to(VIP).build(), kind: Kind::NewFlow });
        round.push(plain(request().payload(vec![7; 100 * index]).build()));
        round.push(plain(
            tcp().from(format!("[2001:db8:c::{index}]:9")).to("[2001:db8:f::10]:80").build(),
        ));
        round.push(plain(udp().from(format!("198.51.100.{index}:53")).to(VIP).build()));
    }
    round
}
