//! Watches the neighbours that are next hops: messages on changes, and the addresses that a
//! successor of the program begins with.

use crate::link::NextHop;
use crate::table::{Neighbour, Neighbours};
use hotloop_packet::ethernet::MacAddress;
use hotloop_stage::Instant;
use std::net::IpAddr;
use std::sync::Arc;

/// Interval between two messages on claims to an address.
const MESSAGE_INTERVAL_NS: u64 = 10_000_000_000;

/// How long a neighbour is used after it stopped answering.
const NEIGHBOUR_NS: u64 = 60_000_000_000;

/// The next hops of a program's ports, and their Ethernet addresses as far as known.
#[derive(Debug, Default)]
pub struct NextHopWatch {
    neighbours: Option<Arc<Neighbours>>,
    /// The next hops, with the names of their ports.
    hops: Vec<(String, NextHop)>,
    /// The last state of each, in the same order.
    found: Vec<Found>,
}

/// The last state of a next hop.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    known: Option<Neighbour>,
    /// Number of reported claims, modulo 65,536.
    claim_count: u16,
    /// The time of the last report of claims.
    claims_at: Option<Instant>,
}

impl Found {
    /// Logs changes: other stations that claim the address at most once in
    /// [`MESSAGE_INTERVAL_NS`], unless it `is_end` of the run.
    fn follow(&mut self, port: &str, neighbour: Neighbour, now: Instant, is_end: bool) {
        let Neighbour { address, mac, is_router, .. } = neighbour;
        match self.known.replace(neighbour) {
            Some(before) if before.mac != mac => tracing::warn!(
                port,
                "neighbour {address}: {} no longer answers, and {mac} does",
                before.mac
            ),
            Some(before) if before.is_router && !is_router => {
                tracing::warn!(port, "neighbour {address} says that it is no router any more");
            }
            _ => {}
        }
        let Some((other, count)) = neighbour.claimed_by else {
            self.claim_count = 0;
            return;
        };
        let new_count = count.wrapping_sub(self.claim_count);
        let before = self.claims_at;
        let is_due = before.is_none_or(|before| now.ns_since(before) >= MESSAGE_INTERVAL_NS);
        if new_count > 0 && (is_end || is_due) {
            self.claim_count = count;
            self.claims_at = Some(now);
            let since = if before.is_some() { "the last such message" } else { "the start" };
            let claims = if new_count == 1 { "claim" } else { "claims" };
            tracing::info!(
                port,
                "neighbour {address}: {other} claims it, so its own station is asked; {new_count} {claims} since {since}"
            );
        }
    }
}

impl NextHopWatch {
    /// Watches these next hops, which have the names of their ports.
    #[must_use]
    pub fn new(neighbours: Arc<Neighbours>, hops: Vec<(String, NextHop)>) -> Self {
        Self { neighbours: Some(neighbours), found: vec![Found::default(); hops.len()], hops }
    }

    /// The port's name and the known state of each next hop.
    pub fn states(&self, now: Instant) -> impl Iterator<Item = (&str, Option<Neighbour>)> {
        self.hops.iter().map(move |(port, hop)| {
            let neighbours = self.neighbours.as_ref();
            let known = neighbours.and_then(|known| known.get(hop.link(), hop.address(), now));
            (port.as_str(), known)
        })
    }

    /// Logs changes of the next hops; with `is_end`, everything that was not logged yet.
    pub fn report(&mut self, now: Instant, is_end: bool) {
        let Some(neighbours) = &self.neighbours else { return };
        for ((port, hop), found) in self.hops.iter().zip(&mut self.found) {
            if let Some(neighbour) = neighbours.get(hop.link(), hop.address(), now) {
                found.follow(port, neighbour, now, is_end);
            }
        }
    }

    /// The neighbours in recent use, with the names of their ports, except those that stopped
    /// answering long before the others.
    #[must_use]
    pub fn known(&self) -> Vec<(String, IpAddr, MacAddress)> {
        let states = self.states(Instant::from_ns(0));
        let known: Vec<_> = states.filter_map(|(port, known)| Some((port, known?))).collect();
        let latest = known.iter().map(|(_, neighbour)| neighbour.confirmed).max();
        let lately = known.into_iter().filter(|(_, neighbour)| {
            latest.is_some_and(|latest| latest.ns_since(neighbour.confirmed) < NEIGHBOUR_NS)
        });
        lately
            .map(|(port, neighbour)| (port.to_owned(), neighbour.address, neighbour.mac))
            .collect()
    }

    /// Begins with a predecessor's [knowledge](Self::known) of next hops that are also this
    /// program's.
    pub fn inherit(&self, known: &[(String, IpAddr, MacAddress)]) {
        let Some(neighbours) = &self.neighbours else { return };
        for (port, address, mac) in known {
            let hops =
                self.hops.iter().filter(|(name, hop)| name == port && hop.address() == *address);
            // A run's time begins at 0.
            hops.for_each(|(_, hop)| {
                neighbours.learn(hop.link(), *address, *mac, Instant::from_ns(0));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use hotloop_packet::PortId;
    use std::net::Ipv6Addr;

    /// Two ports with the same next hop, on links of their own.
    fn watch() -> (NextHopWatch, Arc<Neighbours>) {
        let [gateway, address] = [1, 2].map(|host| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host));
        let hop = |port: u16| {
            let mac = MacAddress::new([2, 0, 0, 0, 9, 9]);
            let link = Link { port: PortId::new(port), vlan: None, mac, address };
            (port.to_string(), NextHop::v6(gateway, link))
        };
        let neighbours = Neighbours::new(8);
        (NextHopWatch::new(Arc::clone(&neighbours), vec![hop(0), hop(1)]), neighbours)
    }

    #[test]
    fn a_successor_begins_with_the_neighbours_of_each_port() {
        let (before, neighbours) = watch();
        let (hop, mac) = (before.hops[1].1, MacAddress::new([2, 0, 0, 0, 0, 1]));
        neighbours.learn(hop.link(), hop.address(), mac, Instant::from_ns(5));
        let known = before.known();
        assert_eq!(known, [("1".to_owned(), hop.address(), mac)]);
        let (after, _) = watch();
        after.inherit(&known);
        assert_eq!(after.known(), known);
    }

    #[test]
    fn a_claim_is_reported_at_most_once_in_ten_seconds_and_in_the_end() {
        let (mut hops, neighbours) = watch();
        let (hop, mac) = (hops.hops[1].1, MacAddress::new([2, 0, 0, 0, 0, 1]));
        let second = |count: u64| Instant::from_ns(count * 1_000_000_000);
        neighbours.learn(hop.link(), hop.address(), mac, second(0));
        hops.report(second(0), false);
        let known = hops.found[1].known;
        let mut reported = |at, count, is_end| {
            let claimed_by = Some((MacAddress::new([2, 0, 0, 0, 0, 9]), count));
            let neighbour = Neighbour { claimed_by, ..known.unwrap() };
            hops.found[1].follow("1", neighbour, second(at), is_end);
            hops.found[1].claim_count
        };
        assert_eq!(
            [reported(1, 1, false), reported(2, 5, false), reported(11, 6, false)],
            [1, 1, 6]
        );
        assert_eq!([reported(12, 7, false), reported(12, 7, true)], [6, 7]);
    }
}
