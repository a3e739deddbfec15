//! The ports that accept frames and tunnels.

use super::{PAIRS, V4_IN_V4, V6_IN_V6, four};
use crate::deployed::{BACKENDS, CLIENTS, OWN_MAC, Running, assert_dropped, run_receiving};
use hotloop::engine::{Deployment, Report};
use hotloop::packet::PortId;
use hotloop::packet::build::{arp_request, echo_request, protocol, tcp, udp};
use hotloop::packet::ethernet::{MacAddress, Station};
use hotloop::testing::PacketPool;
use hotloop_balancer::classify::ReceivingPorts;
use hotloop_balancer::spec::Side;

/// The ports of the configurations: one faces clients, one backends, each with its address.
fn two_sided() -> ReceivingPorts {
    let mut ports = ReceivingPorts::default();
    let own = Station::with(MacAddress::new(OWN_MAC));
    ports.set(PortId::new(CLIENTS as u16), own, Side::Client);
    ports.set(PortId::new(BACKENDS as u16), own, Side::Backend);
    ports
}

/// Runs the script in all deployments.
fn in_all(config: &str, ports: &ReceivingPorts, script: impl Fn(&mut Running<'_>)) -> Report {
    let [first, others @ ..] = [
        Deployment::run_to_completion(1),
        Deployment::run_to_completion(2),
        Deployment::pipeline([1, 2]),
        Deployment::pipeline([2, 2]),
    ]
    .map(|deployment| {
        let pool = PacketPool::unbounded();
        run_receiving(config, deployment, &pool, ports.clone(), &script).1
    });
    for other in others {
        assert_eq!(first.dropped, other.dropped);
    }
    first
}

/// The frame, addressed to this station.
fn to(mac: [u8; 6], frame: impl Into<Vec<u8>>) -> Vec<u8> {
    let mut frame = frame.into();
    frame[..6].copy_from_slice(&mac);
    frame
}

const BROADCAST: [u8; 6] = [0xFF; 6];

#[test]
fn frames_to_other_stations_are_not_taken() {
    let report = in_all(&four(""), &two_sided(), |lb| {
        let others = [[2, 0, 0, 0, 9, 8], [2, 0, 0, 0, 8, 9], [0, 0, 0, 0, 9, 9], BROADCAST];
        for pair in PAIRS {
            let about = pair.reply(udp()).payload([1; 20]).build();
            for frame in [
                pair.syn().build(),
                pair.request(udp()).vlan(7).build(),
                pair.request(tcp()).ttl(1).build(),
                echo_request(1, 1).from(pair.client).to(pair.vip).build(),
                hotloop::packet::build::unreachable(&about).build(),
            ] {
                // Known or not, whatever the packet.
                for _ in 0..2 {
                    for other in others {
                        lb.none(to(other, frame.clone()));
                    }
                    assert_eq!(lb.feed(&[to(OWN_MAC, frame.clone())]).len(), 1);
                }
            }
            let tunnel = pair.reply(udp()).tunnelled(pair.backend, pair.source).build();
            for other in others {
                assert_eq!(lb.feed_at(BACKENDS, 0, &[to(other, tunnel.clone())]), []);
            }
            assert_eq!(lb.feed_at(BACKENDS, 0, &[to(OWN_MAC, tunnel)]).len(), 1);
        }
        // A group address is for every member host: packets to it are no longer a stranger's.
        for frame in [
            arp_request([198, 51, 100, 1].into(), [203, 0, 113, 10].into()),
            udp().from("0.0.0.0:68").to("255.255.255.255:67").build(),
            protocol(58).from("fe80::1").to("ff02::1").payload([134; 24]).build(),
        ] {
            lb.none(to(BROADCAST, frame.clone()));
            lb.none(to([2, 0, 0, 0, 9, 8], frame));
        }
    });
    let not_for_us = 4 * (5 * 2 * 4 + 4) + 3;
    let expected = [("not_for_us", not_for_us), ("punt", 3), ("ttl_expired", 8), ("icmp_echo", 8)];
    assert_dropped(&report, &expected);
}

#[test]
fn a_port_that_takes_frames_to_any_address_takes_them_all() {
    let report = in_all(&four(""), &ReceivingPorts::default(), |lb| {
        for other in [[2, 0, 0, 0, 9, 8], BROADCAST, [0; 6]] {
            for pair in PAIRS {
                assert_eq!(lb.backend(to(other, pair.syn())), pair.backend);
            }
        }
    });
    assert_dropped(&report, &[]);
}

/// Each port accepts its own address.
#[test]
fn what_is_for_one_port_is_not_for_the_other() {
    let mut ports = ReceivingPorts::default();
    let macs = [[2, 0, 0, 0, 9, 1], [2, 0, 0, 0, 9, 2]];
    for (number, mac) in (0..).zip(macs) {
        ports.set(PortId::new(number), Station::with(MacAddress::new(mac)), Side::Both);
    }
    let report = in_all(&four(""), &ports, |lb| {
        for pair in [V4_IN_V4, V6_IN_V6] {
            for port in [CLIENTS, BACKENDS] {
                for (number, mac) in macs.iter().enumerate() {
                    let sent = lb.feed_at(port, 0, &[to(*mac, pair.syn())]);
                    assert_eq!(sent.len(), usize::from(port == number));
                }
            }
        }
    });
    assert_dropped(&report, &[("not_for_us", 4)]);
}

#[test]
fn tunnels_end_by_ports_that_face_backends_alone() {
    let report = in_all(&four(""), &two_sided(), |lb| {
        for pair in PAIRS {
            for (source, own) in [("10.0.0.1", "192.0.2.1"), ("2001:db8:9::1", "2001:db8::1")] {
                let tunnel = pair.reply(udp()).tunnelled(source, own);
                lb.none(to(OWN_MAC, tunnel.clone()));
                let sent = lb.feed_at(BACKENDS, 0, &[to(OWN_MAC, tunnel)]);
                assert!(sent.len() == 1 && sent[0].to_client);
            }
            // From a stranger, no port unwraps it.
            let tunnel = to(OWN_MAC, pair.reply(udp()).tunnelled("10.7.7.7", "192.0.2.1"));
            lb.none(tunnel.clone());
            assert_eq!(lb.feed_at(BACKENDS, 0, &[tunnel]), []);
            // A tunnel to another address is another host's, or a service's.
            lb.none(to(OWN_MAC, pair.reply(udp()).tunnelled("10.0.0.1", "192.0.2.2")));
            let to_service =
                to(OWN_MAC, pair.request(udp()).tunnelled("198.51.100.9", V4_IN_V4.vip));
            assert_eq!(lb.backend(to_service), V4_IN_V4.backend);
            // Services are reached through either port.
            assert_eq!(lb.backend(to(OWN_MAC, pair.syn())), pair.backend);
            let syn = to(OWN_MAC, pair.syn());
            assert_eq!(lb.feed_at(BACKENDS, 0, &[syn])[0].backend(), pair.backend);
        }
    });
    let expected = [("tunnel_from_clients", 12), ("unknown_tunnel_source", 4), ("punt", 4)];
    assert_dropped(&report, &expected);
}
