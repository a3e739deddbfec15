//! From backends back to clients.

use super::expected::to_client;
use super::{PAIRS, Pair, V4_IN_V4, V4_IN_V6, V6_IN_V4, V6_IN_V6, four};
use crate::deployed::{Running, assert_dropped, in_all, preamble, service};
use hotloop::packet::build::{PacketBuilder, protocol, tcp, udp, unreachable};
use hotloop::packet::tcp::flags::{ACK, SYN};

/// A reply in the tunnel from the pair's backend.
fn tunnelled(reply: PacketBuilder, pair: Pair) -> PacketBuilder {
    reply.tunnelled(pair.backend, pair.source)
}

#[test]
fn replies_leave_for_clients_unwrapped_with_a_hop_less_and_else_as_they_were() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            for packet in [
                tcp().tcp_flags(SYN | ACK).tcp_options(&[2, 4, 5, 0xB4]),
                udp().payload([4; 1200]),
                udp().tos(0xB9).payload([1; 3]),
                udp().dont_fragment().identification(99),
                udp().vlan(9).payload([1; 40]),
                protocol(50).payload([7; 31]),
            ] {
                let reply = pair.reply(packet);
                let sent = lb.answer(tunnelled(reply.clone().ttl(33), pair));
                assert!(sent.to_client, "{pair:?}");
                assert_eq!(sent.frame, to_client(&reply.ttl(32).build()), "{pair:?}");
            }
        }
        assert_eq!(lb.count(|it| it.to_clients.count()), 24);
    });
    assert_dropped(&report, &[]);
}

#[test]
fn replies_meet_their_connection_on_its_worker() {
    in_all(&four(""), |lb| {
        for pair in PAIRS {
            for port in 1..100 {
                let (client, vip) = (pair.client(port), pair.vip(80));
                lb.one(tcp().from(&client).to(&vip));
                lb.answer(tunnelled(tcp().tcp_flags(SYN | ACK).from(&vip).to(&client), pair));
            }
        }
        assert_eq!(lb.count(|it| it.replies_known.count()), 4 * 99);
        // A reply without a known connection reaches its client, too.
        let stray = V4_IN_V4.reply(udp()).to("198.51.100.99:1");
        assert!(lb.answer(tunnelled(stray, V4_IN_V4)).to_client);
        assert_eq!(lb.count(|it| it.replies_known.count()), 4 * 99);
    });
}

#[test]
fn replies_keep_their_connection_from_being_forgotten() {
    use std::time::Duration;
    in_all(&four("timeouts_s = { udp = 10 }"), |lb| {
        let (client, vip) = (V4_IN_V4.client(1), V4_IN_V4.vip(53));
        lb.one(udp().from(&client).to(&vip));
        for _ in 0..5 {
            lb.advance(Duration::from_secs(9));
            lb.answer(tunnelled(udp().from(&vip).to(&client), V4_IN_V4));
        }
        assert!(lb.connection(17, &client, &vip).is_some());
        lb.advance(Duration::from_millis(10_040));
        assert!(lb.connection(17, &client, &vip).is_none());
    });
}

#[test]
fn a_reply_whose_header_has_a_wrong_checksum_is_dropped() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in [V4_IN_V4, V4_IN_V6] {
            let request = pair.request(udp()).build();
            lb.one(request.clone());
            let error = unreachable(&request).from(pair.vip).to(pair.client);
            let long = tunnelled(pair.reply(udp()).payload([6; 3000]), pair);
            let mut frames = long.build_fragments(1400);
            frames.truncate(2);
            frames.extend([
                tunnelled(pair.reply(udp()), pair).build(),
                tunnelled(pair.reply(tcp()).ipv4_options(&[1, 1, 1, 0]), pair).build(),
                tunnelled(pair.reply(protocol(50)).payload([7; 31]), pair).build(),
                tunnelled(pair.reply(udp()).vlan(9), pair).build(),
                tunnelled(error, pair).build(),
            ]);
            for frame in frames {
                let link_bytes = if frame[12] == 0x81 { 18 } else { 14 };
                let header = link_bytes + if pair.is_in_v4() { 20 } else { 40 };
                let known = lb.count(|it| it.replies_known.count());
                // Code point, identification, TTL, checksum.
                for (offset, bit) in [(1, 8), (4, 1), (8, 2), (10, 1), (11, 0x80)] {
                    let mut damaged = frame.clone();
                    damaged[header + offset] ^= bit;
                    lb.none(damaged);
                }
                if frame[header] == 0x46 {
                    let mut damaged = frame.clone();
                    damaged[header + 22] = 0;
                    lb.none(damaged);
                }
                assert_eq!(lb.count(|it| it.replies_known.count()), known);
                assert!(lb.one(frame).to_client, "{pair:?}");
            }
        }
    });
    assert_dropped(&report, &[("bad_checksum", 2 * (7 * 5 + 1))]);
}

#[test]
fn a_reply_whose_ttl_is_spent_is_dropped_without_an_answer() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            for ttl in [0, 1] {
                lb.none(tunnelled(pair.reply(udp()).ttl(ttl), pair));
            }
            assert!(lb.one(tunnelled(pair.reply(udp()).ttl(2), pair)).to_client);
        }
    });
    assert_dropped(&report, &[("ttl_expired", 8)]);
    assert_eq!(report.created, 0);
}

#[test]
fn fragments_of_replies_pass() {
    in_all(&four(""), |lb| {
        for pair in PAIRS {
            let reply = pair.reply(udp()).payload([6; 3000]).ttl(9);
            let frames = tunnelled(reply.clone(), pair).build_fragments(1400);
            assert_eq!(frames.len(), 3);
            let expected = reply.ttl(8).build_fragments(1400);
            for (frame, expected) in frames.into_iter().zip(expected) {
                assert_eq!(lb.one(frame).frame, to_client(&expected), "{pair:?}");
            }
        }
    });
}

#[test]
fn a_tunnelled_request_to_a_service_is_balanced_like_any_other() {
    let config =
        preamble("") + &service("web", "203.0.113.10 any any", "", &["10.0.0.1", "10.0.0.2"]);
    let (_, report) = in_all(&config, |lb| {
        for port in 1..50 {
            let request = udp().from(format!("198.51.100.7:{port}")).to("203.0.113.10:53");
            let bare = lb.one(request.clone());
            // From a peer and from a backend, in tunnels of both families.
            for (from, own) in [
                ("10.9.9.9", "192.0.2.1"),
                ("10.0.0.1", "192.0.2.1"),
                ("2001:db8:9::1", "2001:db8::1"),
            ] {
                let sent = lb.one(request.clone().tunnelled(from, own));
                assert_eq!(sent.backend(), bare.backend());
                assert_eq!(sent.inner()[..4], bare.inner()[..4]);
                assert_eq!(sent.inner()[6..], bare.inner()[6..]);
            }
        }
        assert_eq!(lb.admitted(), 49);
    });
    assert_dropped(&report, &[]);
}

/// Lets a SYN and its answer pass, and returns the MSS in the answer.
fn clamped(lb: &mut Running<'_>, pair: Pair, options: &[u8]) -> Vec<u8> {
    lb.one(pair.syn());
    let reply = pair.reply(tcp()).tcp_flags(SYN | ACK).payload([]).tcp_options(options);
    lb.answer(tunnelled(reply, pair)).frame
}

#[test]
fn clamp_mss_lowers_the_option_of_syn_acks_to_what_fits_the_tunnel() {
    let mss = |bytes: u16| [&[2, 4][..], &bytes.to_be_bytes(), &[1, 1, 1, 0]].concat();
    let (_, report) = in_all(&four("clamp_mss = true"), |lb| {
        for (pair, most) in [
            (V4_IN_V4, 1500 - 20 - 20 - 20),
            (V4_IN_V6, 1500 - 40 - 20 - 20),
            (V6_IN_V6, 1500 - 40 - 40 - 20),
            (V6_IN_V4, 1500 - 20 - 40 - 20),
        ] {
            let expected = |options: &[u8]| {
                let reply = pair.reply(tcp()).tcp_flags(SYN | ACK).tcp_options(options).ttl(63);
                to_client(&reply.build())
            };
            assert_eq!(clamped(lb, pair, &mss(1460)), expected(&mss(most)), "{pair:?}");
            assert_eq!(clamped(lb, pair, &mss(most + 1)), expected(&mss(most)), "{pair:?}");
            // It is never raised, and not inserted.
            assert_eq!(clamped(lb, pair, &mss(most)), expected(&mss(most)), "{pair:?}");
            assert_eq!(clamped(lb, pair, &mss(536)), expected(&mss(536)), "{pair:?}");
            assert_eq!(clamped(lb, pair, &[]), expected(&[]), "{pair:?}");
            // In no other segment.
            for flags in [SYN, ACK] {
                let reply = pair.reply(tcp()).tcp_flags(flags).tcp_options(&mss(1460));
                let sent = lb.answer(tunnelled(reply.clone(), pair));
                assert_eq!(sent.frame, to_client(&reply.ttl(63).build()), "{pair:?}");
            }
        }
        // If the tunnel is unknown, the longer outer header counts.
        let stray = V4_IN_V4.reply(tcp()).to("198.51.100.99:1").tcp_flags(SYN | ACK);
        let sent = lb.answer(tunnelled(stray.clone().tcp_options(&mss(1460)), V4_IN_V4));
        assert_eq!(sent.frame, to_client(&stray.tcp_options(&mss(1420)).ttl(63).build()));
    });
    assert_dropped(&report, &[]);
}

#[test]
fn without_clamp_mss_syn_acks_stay_as_they_are() {
    in_all(&four(""), |lb| {
        for pair in PAIRS {
            let options = [2, 4, 0xFF, 0xFF];
            let reply = pair.reply(tcp()).tcp_flags(SYN | ACK).tcp_options(&options).ttl(63);
            assert_eq!(clamped(lb, pair, &options), to_client(&reply.build()));
        }
    });
}
