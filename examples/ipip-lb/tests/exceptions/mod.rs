//! The exceptions of two balancers, carried from one to the other by control: a connection's
//! packets keep going to its backend when the routers send them to the other balancer.
#![allow(clippy::print_stdout, reason = "a test says what it has seen")]

mod changes;
mod cost;
mod merging;
mod node;
mod references;

use hotloop::packet::build::{tcp, udp, unreachable};
use hotloop::packet::tcp::flags::ACK;
use node::{BACKENDS, Node, TURNS, WEB, WEB6};
use std::net::IpAddr;

const CONNECTIONS: usize = 300;

/// How the second balancer gets the first one's exceptions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    NotAtAll,
    ByChanges,
    BySnapshot,
}

fn client(index: usize, vip: &str) -> String {
    let (high, low) = (index / 250, index % 250 + 1);
    if vip.starts_with('[') {
        format!("[2001:db8:c::{high}:{low}]:4000")
    } else {
        format!("198.51.{high}.{low}:4000")
    }
}

/// Drains a backend on both of two balancers, each of which has seen half of the connections, then
/// sends all packets to the second one. Returns the number of connections that go to other backends
/// than before.
fn moved(vip: &str, way: Way) -> usize {
    let mut nodes = [Node::new(), Node::new()];
    let all = 0..CONNECTIONS;
    let before: Vec<IpAddr> =
        all.clone().map(|index| nodes[index % 2].open(&client(index, vip), vip)).collect();
    let mut used = before.clone();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), BACKENDS.len());

    let [first, second] = &mut nodes;
    first.weigh(BACKENDS[2], 0);
    second.weigh(BACKENDS[2], 0);
    let said = match way {
        Way::NotAtAll => Vec::new(),
        Way::ByChanges => first.changes(),
        Way::BySnapshot => first.snapshot(),
    };
    if way != Way::NotAtAll {
        let drained = all.clone().step_by(2).filter(|it| before[*it].to_string() == BACKENDS[2]);
        // A walk overlaps with changes, so some may be reported twice.
        assert!(said.len() >= drained.count());
    }
    second.import(&said);
    let after = |second: &mut Node, index| {
        second.backend(tcp().from(client(index, vip)).to(vip).tcp_flags(ACK))
    };
    all.filter(|index| after(second, *index) != before[*index]).count()
}

#[test]
fn connections_to_a_drained_backend_go_on_through_the_other_balancer() {
    for vip in [WEB, WEB6] {
        for way in [Way::ByChanges, Way::BySnapshot] {
            assert_eq!(moved(vip, way), 0, "{vip} {way:?}");
        }
        // A sixth: those to one of three backends that the other balancer has seen.
        let without = moved(vip, Way::NotAtAll);
        assert!((20..80).contains(&without), "{vip}: {without} of {CONNECTIONS}");
    }
}

/// Backends that take turns make every connection an exception from the beginning.
#[test]
fn connections_of_backends_that_take_turns_go_on_through_the_other_balancer() {
    for is_shared in [true, false] {
        let (mut first, mut second) = (Node::new(), Node::new());
        let query = |index| udp().from(client(index, TURNS)).to(TURNS);
        let before: Vec<_> = (0..60).map(|index| first.backend(query(index))).collect();
        let said = first.changes();
        assert_eq!(said.len(), 60);
        if is_shared {
            second.import(&said);
        }
        // In another order, so that turns don't coincide by chance.
        let moved = (0..60).rev().filter(|it| second.backend(query(*it)) != before[*it]).count();
        assert_eq!(moved > 0, !is_shared, "{moved}");
    }
}

/// An ICMP error about a connection, and the fragments of a datagram, go to the connection's
/// backend through either balancer; and a router's error makes no connection this balancer's.
#[test]
fn errors_and_fragments_of_another_balancers_connection_find_its_backend() {
    for is_shared in [true, false] {
        let (mut first, mut second) = (Node::new(), Node::new());
        let (mut moved, mut count) = (0, 0);
        for index in 0..40 {
            let client = client(index, TURNS);
            let whole = || udp().from(&client).to(TURNS).payload([7; 3000]);
            let backend = first.backend(udp().from(&client).to(TURNS));
            if is_shared {
                let said = first.changes();
                second.import(&said);
            }
            let about = udp().from(TURNS).to(&client).payload([7; 900]).build();
            moved += usize::from(second.backend(unreachable(&about)) != backend);
            let is_remote = |node: &Node| {
                let all = node.lb.balance().connections().iter();
                all.filter(|(_, connection)| connection.is_remote()).count()
            };
            assert_eq!(is_remote(&second), usize::from(is_shared));
            let pieces = whole().identification(index as u16).build_fragments(1400);
            // The last fragment comes first.
            let out = second.lb.feed(&[pieces[2].clone(), pieces[0].clone(), pieces[1].clone()]);
            let went =
                out.packets().iter().map(|it| crate::bench::tunnel_of(&it.packet).destination);
            let went: Vec<_> = went.collect();
            assert_eq!(went.len(), 3);
            moved += went.iter().filter(|it| **it != backend).count();
            assert_eq!(is_remote(&second), 0);
            count += 4;
        }
        println!("shared: {is_shared}: {moved} of {count} went elsewhere");
        assert_eq!(moved > 0, !is_shared);
    }
}
