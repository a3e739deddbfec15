//! Decapsulation: RFC 6040's rules for congestion marks, and refused packets.

use std::net::Ipv4Addr;

use hotloop_packet::{
    Header, Malformed, PacketBuf,
    build::{PacketBuilder, arp_request, protocol, udp},
    ipip::{DecapsulateError, decapsulate},
    ipv4,
    memory::MemPacket,
};

use crate::frames::TUNNELS;

/// A wrapped packet with a changed outer header, which has a right checksum again.
fn changed(builder: PacketBuilder, tunnel: (&str, &str), change: impl Fn(&mut [u8])) -> MemPacket {
    let mut frame = builder.tunnelled(tunnel.0, tunnel.1).build();
    change(&mut frame[14..]);
    if tunnel.0.contains('.') {
        ipv4::fill_checksum(&mut frame[14..]).unwrap();
    }
    MemPacket::new(&frame)
}

#[test]
fn congestion_marks_join_as_rfc_6040_says() {
    const NOT_ECT: u8 = 0;
    const ECT_1: u8 = 1;
    const ECT_0: u8 = 2;
    const CE: u8 = 3;
    // Figure 4: the inner mark, and the resulting marks under outer Not-ECT, ECT(0), ECT(1), CE.
    let figure = [
        (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
        (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
        (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
        (CE, [Some(CE), Some(CE), Some(CE), Some(CE)]),
    ];
    for (inner, row) in figure {
        for (outer, expected) in [NOT_ECT, ECT_0, ECT_1, CE].into_iter().zip(row) {
            for (to, tunnel) in [("192.0.2.1", TUNNELS[0]), ("2001:db8::2", TUNNELS[1])]
                .into_iter()
                .chain([("192.0.2.1", TUNNELS[1]), ("2001:db8::2", TUNNELS[0])])
            {
                let builder = |ecn| udp().to(to).tos(0xb8 | ecn).ttl(7);
                let mut packet = changed(builder(inner), tunnel, |ip| {
                    if ip[0] >> 4 == 4 { ip[1] = outer } else { ip[1] = outer << 4 }
                });
                let before = packet.data().to_vec();
                match (decapsulate(&mut packet), expected) {
                    (Ok(_), Some(ecn)) => assert_eq!(packet.data(), builder(ecn).build()),
                    (Err(DecapsulateError::Congestion), None) => assert_eq!(packet.data(), before),
                    (result, _) => panic!("inner {inner}, outer {outer}: {result:?}"),
                }
            }
        }
    }
}

#[test]
fn outer_options_and_extension_headers_are_taken_off() {
    let inner = udp().payload("hello").build();
    let outers = [
        protocol(4).ipv4_options(&[1; 8]),
        protocol(4)
            .to("2001:db8::2")
            // The encapsulation limit that Linux adds (RFC 2473, section 4.1.1).
            .extension(60, &[4, 1, 4, 1, 1, 0]),
    ];
    for outer in outers {
        // Bytes after the inner packet, inside the outer one.
        let mut payload = inner[14..].to_vec();
        payload.extend([0xee; 5]);
        let frame = outer.payload(payload).build();
        let mut packet = MemPacket::new(&frame);
        decapsulate(&mut packet).unwrap();
        assert_eq!(packet.data(), inner);
    }
}

#[test]
fn what_cannot_be_unwrapped_stays_as_it_was() {
    let (v4, v6) = (TUNNELS[0], TUNNELS[1]);
    let good = || udp().payload("hello");
    let mut wrong_checksum = good().tunnelled(v4.0, v4.1).build();
    wrong_checksum[24] ^= 1;
    let ipv6_in_4 = |packet: &mut [u8]| packet[9] = 41;
    let cases = [
        (good().packet_in_memory(), DecapsulateError::NotTunnel { protocol: 17 }),
        (MemPacket::new(&wrong_checksum), DecapsulateError::Checksum),
        (changed(good(), v4, |ip| ip[6] = 0x20), DecapsulateError::Fragment),
        (changed(good(), v4, |ip| ip[7] = 1), DecapsulateError::Fragment),
        (
            changed(good(), v4, ipv6_in_4),
            // 33 bytes of IPv4, but the inner IPv6 header needs 40.
            Malformed::Cut { header: Header::Ipv6, wanted_bytes: 40, available_bytes: 33 }.into(),
        ),
        (
            changed(good(), v4, |ip| ip[3] -= 1),
            Malformed::Cut { header: Header::Ipv4, wanted_bytes: 33, available_bytes: 32 }.into(),
        ),
        (
            changed(good(), v4, |ip| ip[3] += 1),
            Malformed::Cut { header: Header::Ipv4, wanted_bytes: 54, available_bytes: 53 }.into(),
        ),
        (
            changed(good(), v6, |ip| ip[5] += 1),
            Malformed::Cut { header: Header::Ipv6, wanted_bytes: 74, available_bytes: 73 }.into(),
        ),
        (changed(good(), v6, |ip| ip[6] = 59), DecapsulateError::NotTunnel { protocol: 59 }),
        (
            MemPacket::new(&arp_request(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST)),
            DecapsulateError::NotIp { ethertype: 0x0806 },
        ),
    ];
    for (mut packet, expected) in cases {
        let before = packet.data().to_vec();
        assert_eq!(decapsulate(&mut packet), Err(expected));
        assert_eq!(packet.data(), before);
    }

    let fragments = protocol(4)
        .to("2001:db8::2")
        .payload(&good().payload([7; 300]).build()[14..])
        .build_fragments(200);
    for frame in fragments {
        assert_eq!(decapsulate(&mut MemPacket::new(&frame)), Err(DecapsulateError::Fragment));
    }
}
