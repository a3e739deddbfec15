//! The outer headers that connections keep: they are always the headers of their targets.

use crate::bench::{Lb, lb, tunnel_of};
use hotloop::packet::build::tcp;
use hotloop::packet::tcp::flags::{ACK, RST, SYN};
use hotloop_balancer::services::{Removal, TargetName};
use std::net::IpAddr;

/// Both ends of the tunnel that a segment of a connection takes.
fn tunnel(lb: &mut Lb, flags: u8) -> (IpAddr, IpAddr) {
    let segment = tcp().from("198.51.100.7:4000").to("203.0.113.10:80").tcp_flags(flags);
    let tunnel = tunnel_of(&lb.one(&segment.build()));
    (tunnel.source, tunnel.destination)
}

/// Begins a connection, which keeps a header when this returns. Returns its tunnel.
fn begin(lb: &mut Lb) -> (IpAddr, IpAddr) {
    let ends = tunnel(lb, SYN);
    // The first ACK establishes it. The others change nothing and take the fast path.
    for _ in 0..3 {
        assert_eq!(tunnel(lb, ACK), ends);
    }
    ends
}

fn backend(address: IpAddr) -> TargetName {
    TargetName { service: "web".to_owned(), address }
}

#[test]
fn with_another_source_it_is_another_header() {
    let mut lb = lb();
    let (_, at) = begin(&mut lb);
    lb.config.balancer.source_v4 = "198.18.7.1".parse().unwrap();
    lb.reload();
    for _ in 0..3 {
        assert_eq!(tunnel(&mut lb, ACK), ("198.18.7.1".parse().unwrap(), at));
    }
}

#[test]
fn a_backend_that_was_removed_gets_no_more_packets_even_when_it_is_back() {
    let mut lb = lb();
    let (source, first) = begin(&mut lb);
    lb.standing.removed.insert(backend(first), Removal::Rebalance);
    lb.reload();
    let (_, second) = tunnel(&mut lb, ACK);
    assert_ne!(second, first);
    lb.standing.removed.clear();
    lb.reload();
    for _ in 0..3 {
        assert_eq!(tunnel(&mut lb, ACK), (source, second));
    }
}

/// A refresh leaves the targets unchanged: only the connection changes.
#[test]
fn a_connection_that_begins_anew_elsewhere_keeps_the_header_of_its_new_backend() {
    let mut lb = lb();
    let (source, first) = begin(&mut lb);
    let targets = lb.services().targets_serial();
    lb.standing.weights.insert(backend(first), 0);
    lb.refresh();
    assert_eq!(lb.services().targets_serial(), targets);
    assert_eq!(tunnel(&mut lb, ACK), (source, first));
    assert_eq!(tunnel(&mut lb, RST), (source, first));
    let (_, second) = begin(&mut lb);
    assert_ne!(second, first);
}

/// Packets of IPv4 in tunnels of IPv6 have no header of this kind.
#[test]
fn a_backend_of_ipv6_is_reached_all_the_same() {
    let mut lb = lb();
    let mut send = |flags| {
        let segment = tcp().from("198.51.100.7:4000").to("203.0.113.11:80").tcp_flags(flags);
        tunnel_of(&lb.one(&segment.build())).destination
    };
    let backend = send(SYN);
    assert!(backend.is_ipv6());
    for _ in 0..4 {
        assert_eq!(send(ACK), backend);
    }
}
