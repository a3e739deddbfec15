//! Frames of every kind that the builders make.

use std::net::Ipv4Addr;

use hotloop_packet::{
    build::{
        PacketBuilder, arp_request, echo_reply, echo_request, protocol, tcp, time_exceeded,
        too_big, udp, unreachable,
    },
    ip,
};

/// The two ends of a flow, in both families.
pub const ENDS: [(&str, &str); 2] =
    [("10.0.0.1:1000", "203.0.113.10:80"), ("[2001:db8::1]:1000", "[2001:db8:ffff::10]:80")];

/// The two ends of a tunnel, in both families.
pub const TUNNELS: [(&str, &str); 2] =
    [("10.9.0.7", "192.0.2.1"), ("2001:db8:9::7", "2001:db8:2::1")];

/// Every kind of message between two ends.
pub fn messages(from: &str, to: &str) -> Vec<PacketBuilder> {
    let about = udp().from(from).to(to).payload([7; 90]).build();
    let messages = [
        udp(),
        tcp().payload("GET /"),
        tcp().tcp_options(&[2, 4, 5, 0xb4]),
        echo_request(7, 1).payload("ping"),
        echo_reply(7, 1),
        protocol(47).payload([0; 12]),
        protocol(59),
    ];
    let both = messages.map(|message| message.from(from).to(to));
    let errors = [
        unreachable(&about),
        time_exceeded(&about).quote_bytes(49),
        too_big(&about, 1400).quote_bytes(48),
    ];
    both.into_iter().chain(errors).collect()
}

/// Frames of every kind: messages plain, tagged, with options, fragmented, tunnelled.
pub fn frames() -> Vec<Vec<u8>> {
    let mut frames = vec![arp_request(Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST)];
    for (from, to) in ENDS {
        for message in messages(from, to) {
            let rich = message
                .clone()
                .qinq(7, 8)
                .ipv4_options(&[7, 7, 4, 0, 0, 0, 0, 0])
                .extension(ip::protocol::HOP_BY_HOP, &[1, 4, 0, 0, 0, 0])
                .extension(
                    ip::protocol::DESTINATION_OPTIONS,
                    &[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                );
            frames.push(message.clone().padded().build());
            frames.push(message.clone().vlan(9).build());
            frames.push(rich.clone().build());
            for (source, destination) in TUNNELS {
                frames.push(message.clone().tunnelled(source, destination).build());
                frames.push(rich.clone().tunnelled(source, destination).build());
            }
            let long = rich.payload([9; 200]);
            frames.extend(long.build_fragments(120));
        }
    }
    frames
}
