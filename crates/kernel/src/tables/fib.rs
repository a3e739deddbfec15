//! Stores the routes of one IP version, by table and prefix.

use super::objects::{Hop, Route, RouteKind};
use super::{DEFAULT, LOCAL, Lookup, MAIN, NextHop};
use hotloop_packet::prefix::Prefix;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// The routes of a table: by prefix length, longest first, and by prefix. Routes of a prefix are in
/// the order of their metrics; those of the same metric are in the kernel's order.
type Table = BTreeMap<Reverse<u8>, HashMap<IpAddr, Vec<Route>>>;

/// The order of tables in the kernel's default rules.
const ORDER: [u32; 3] = [LOCAL, MAIN, DEFAULT];

/// The routes of one IP version.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Fib([Table; ORDER.len()]);

/// The effect of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Changed {
    /// None: the table had it before.
    Nothing,
    /// The routes changed as announced.
    Routes,
    /// The message doesn't tell enough: the routes must be read again.
    Unclear,
}

/// How a route was added, by the flags of its message (`NLM_F_…`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Addition {
    /// Beside others of its prefix.
    New,
    /// Replacing the one with its prefix and metric.
    Replacing,
}

impl Fib {
    /// Adds a route of a dump, after those with its prefix and metric.
    pub(super) fn push(&mut self, route: Route) {
        let routes = self.routes_mut(&route);
        let at = routes.partition_point(|other| other.metric <= route.metric);
        routes.insert(at, route);
    }

    /// Applies an addition. Among routes with the same prefix and metric the order counts, and
    /// messages don't tell it.
    pub(super) fn add(&mut self, route: Route, addition: Addition) -> Changed {
        let routes = self.routes_mut(&route);
        let same = routes.iter().filter(|other| other.metric == route.metric).count();
        let known = routes.iter_mut().find(|other| other.metric == route.metric);
        match (known, addition) {
            (None, _) => {
                self.push(route);
                Changed::Routes
            }
            (Some(known), _) if same == 1 && *known == route => Changed::Nothing,
            (Some(known), Addition::Replacing) if same == 1 => {
                *known = route;
                Changed::Routes
            }
            (Some(_), _) => Changed::Unclear,
        }
    }

    /// Applies a deletion.
    pub(super) fn remove(&mut self, route: &Route) -> Changed {
        let routes = self.routes_mut(route);
        let mut same = (0..routes.len()).filter(|at| routes[*at].metric == route.metric);
        let changed = match (same.next(), same.next()) {
            (None, _) => Changed::Nothing,
            // Flags that mark a path as down don't count here.
            (Some(at), None) if is_same(&routes[at], route) => {
                routes.remove(at);
                Changed::Routes
            }
            _ => Changed::Unclear,
        };
        if routes.is_empty() {
            self.forget(route);
        }
        changed
    }

    /// The kernel's next hop for this address.
    pub(super) fn lookup(&self, destination: IpAddr) -> Lookup {
        for table in &self.0 {
            match lookup_in(table, destination) {
                Some(Lookup::NoRoute) | None => {}
                Some(found) => return found,
            }
        }
        Lookup::NoRoute
    }

    /// All routes, table by table, longest prefixes first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Route> {
        let of_len = self.0.iter().flat_map(|table| table.values());
        of_len.flat_map(|prefixes| prefixes.values()).flatten()
    }

    fn table_mut(&mut self, number: u32) -> &mut Table {
        let at = ORDER.iter().position(|table| *table == number);
        &mut self.0[at.expect("routes of other tables are left out when they are read")]
    }

    fn routes_mut(&mut self, route: &Route) -> &mut Vec<Route> {
        let table = self.table_mut(route.table);
        let prefixes = table.entry(Reverse(route.prefix.len())).or_default();
        prefixes.entry(route.prefix.network()).or_default()
    }

    /// Removes the entry of a prefix without routes.
    fn forget(&mut self, route: &Route) {
        let table = self.table_mut(route.table);
        let len = Reverse(route.prefix.len());
        if let Some(prefixes) = table.get_mut(&len) {
            prefixes.remove(&route.prefix.network());
            if prefixes.is_empty() {
                table.remove(&len);
            }
        }
    }
}

/// A table's result for an address. `None` if the table has no route, and `NoRoute` for a route of
/// type throw.
fn lookup_in(table: &Table, destination: IpAddr) -> Option<Lookup> {
    let found = table.iter().filter_map(|(Reverse(len), prefixes)| {
        let routes = prefixes.get(&Prefix::of(destination, *len).network())?;
        routes.iter().find_map(|route| taken(route, destination))
    });
    { found }.next()
}

/// The result of this route. `None` if the route can't be used.
fn taken(route: &Route, destination: IpAddr) -> Option<Lookup> {
    Some(match route.kind {
        RouteKind::Unicast => {
            let hop = best(&route.hops)?;
            if hop.is_encapsulating {
                return Some(Lookup::Encapsulated);
            }
            Lookup::Via(NextHop {
                interface_index: hop.interface_index,
                address: hop.gateway.unwrap_or(destination),
                is_gateway: hop.gateway.is_some(),
                source: route.source,
            })
        }
        RouteKind::Local => Lookup::Local,
        RouteKind::Broadcast => Lookup::Broadcast,
        RouteKind::Multicast => Lookup::Multicast,
        RouteKind::Blackhole => Lookup::Blackhole,
        RouteKind::Unreachable => Lookup::Unreachable,
        RouteKind::Prohibit => Lookup::Prohibited,
        RouteKind::Throw => Lookup::NoRoute,
    })
}

/// The first usable path: one with a carrier, if there is any.
fn best(hops: &[Hop]) -> Option<&Hop> {
    let alive = || hops.iter().filter(|hop| !hop.is_dead);
    alive().find(|hop| !hop.is_linkdown).or_else(|| alive().next())
}

fn is_same(one: &Route, other: &Route) -> bool {
    let path = |hop: &Hop| (hop.interface_index, hop.gateway);
    one.kind == other.kind
        && one.protocol == other.protocol
        && one.hops.iter().map(path).eq(other.hops.iter().map(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(prefix: &str, metric: u32, paths: &[(u32, &str)]) -> Route {
        let (address, len) = prefix.split_once('/').unwrap();
        let hops = paths.iter().map(|(interface_index, gateway)| Hop {
            interface_index: *interface_index,
            gateway: gateway.parse().ok(),
            is_dead: false,
            is_linkdown: false,
            is_encapsulating: false,
        });
        Route {
            prefix: Prefix::of(address.parse().unwrap(), len.parse().unwrap()),
            table: MAIN,
            metric,
            protocol: 4,
            kind: RouteKind::Unicast,
            source: None,
            hops: hops.collect(),
        }
    }

    fn via(fib: &Fib, destination: &str) -> String {
        match fib.lookup(destination.parse().unwrap()) {
            Lookup::Via(hop) => format!("{} {}", hop.interface_index, hop.address),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn the_longest_prefix_wins_and_then_the_smallest_metric() {
        let mut fib = Fib::default();
        for route in [
            route("0.0.0.0/0", 100, &[(1, "192.0.2.1")]),
            route("0.0.0.0/0", 50, &[(2, "192.0.2.2")]),
            route("10.0.0.0/8", 700, &[(3, "")]),
            route("10.1.2.3/32", 900, &[(4, "192.0.2.4")]),
            route("::/0", 1, &[(5, "fe80::1")]),
        ] {
            assert_eq!(fib.add(route, Addition::New), Changed::Routes);
        }
        assert_eq!(via(&fib, "198.51.100.1"), "2 192.0.2.2");
        assert_eq!(via(&fib, "10.1.2.2"), "3 10.1.2.2");
        assert_eq!(via(&fib, "10.1.2.3"), "4 192.0.2.4");
        assert_eq!(via(&fib, "2001:db8::1"), "5 fe80::1");
        assert_eq!(fib.remove(&route("0.0.0.0/0", 50, &[(2, "192.0.2.2")])), Changed::Routes);
        assert_eq!(via(&fib, "198.51.100.1"), "1 192.0.2.1");
        assert_eq!(fib.iter().count(), 4);
    }

    #[test]
    fn routes_that_drop_and_tables_in_their_order() {
        let mut fib = Fib::default();
        let of = |prefix, table, kind| Route { table, kind, ..route(prefix, 0, &[(1, "")]) };
        for (prefix, table, kind, found) in [
            ("10.0.0.0/32", LOCAL, RouteKind::Local, "Local"),
            ("10.0.1.0/32", LOCAL, RouteKind::Broadcast, "Broadcast"),
            ("10.0.2.0/32", MAIN, RouteKind::Blackhole, "Blackhole"),
            ("10.0.3.0/32", MAIN, RouteKind::Unreachable, "Unreachable"),
            ("10.0.4.0/32", MAIN, RouteKind::Prohibit, "Prohibited"),
            ("10.0.5.0/32", MAIN, RouteKind::Throw, "NoRoute"),
            ("10.0.6.0/32", MAIN, RouteKind::Multicast, "Multicast"),
        ] {
            fib.push(of(prefix, table, kind));
            assert_eq!(via(&fib, prefix.trim_end_matches("/32")), found);
        }
        // The first table with a route decides, whatever the lengths; a throw route hands over to
        // the next table.
        fib.push(of("10.0.2.0/24", LOCAL, RouteKind::Local));
        assert_eq!(via(&fib, "10.0.2.0"), "Local");
        fib.push(of("10.0.5.0/24", DEFAULT, RouteKind::Unicast));
        assert_eq!(via(&fib, "10.0.5.0"), "1 10.0.5.0");
    }

    #[test]
    fn of_several_paths_the_first_that_can_be_used_is_taken() {
        let mut fib = Fib::default();
        let mut paths =
            route("0.0.0.0/0", 0, &[(1, "192.0.2.1"), (2, "192.0.2.2"), (3, "fe80::3")]);
        let mut set = |change: &dyn Fn(&mut [Hop])| {
            change(&mut paths.hops);
            fib.add(paths.clone(), Addition::Replacing);
            via(&fib, "10.0.0.1")
        };
        assert_eq!(set(&|_| ()), "1 192.0.2.1");
        assert_eq!(set(&|hops| hops[0].is_dead = true), "2 192.0.2.2");
        assert_eq!(set(&|hops| hops[1].is_linkdown = true), "3 fe80::3");
        assert_eq!(set(&|hops| hops[2].is_dead = true), "2 192.0.2.2");
        assert_eq!(set(&|hops| hops[1].is_encapsulating = true), "Encapsulated");
        // Without a usable path, a shorter prefix is looked up.
        assert_eq!(set(&|hops| hops[1].is_dead = true), "NoRoute");
    }

    #[test]
    fn what_messages_leave_open_is_unclear() {
        let mut fib = Fib::default();
        let (one, other) = (route("10.0.0.0/8", 0, &[(1, "")]), route("10.0.0.0/8", 0, &[(2, "")]));
        assert_eq!(fib.remove(&one), Changed::Nothing);
        assert_eq!(fib.add(one.clone(), Addition::New), Changed::Routes);
        assert_eq!(fib.add(one.clone(), Addition::New), Changed::Nothing);
        // Before or after it?
        assert_eq!(fib.add(other.clone(), Addition::New), Changed::Unclear);
        // A route other than the known one.
        assert_eq!(fib.remove(&other), Changed::Unclear);
        fib.push(other.clone());
        assert_eq!(fib.add(other.clone(), Addition::Replacing), Changed::Unclear);
        assert_eq!(fib.remove(&other), Changed::Unclear);
        assert_eq!(via(&fib, "10.0.0.1"), "1 10.0.0.1");
    }

    #[test]
    fn nothing_is_left_of_what_was_deleted() {
        let mut fib = Fib::default();
        let routes: Vec<_> =
            (0..=32).map(|len| route(&format!("0.0.0.0/{len}"), 0, &[(1, "")])).collect();
        routes.iter().for_each(|route| fib.push(route.clone()));
        assert_eq!(fib.iter().count(), 33);
        routes.iter().for_each(|route| assert_eq!(fib.remove(route), Changed::Routes));
        assert_eq!(fib, Fib::default());
    }

    #[test]
    fn prefixes_contain_their_own() {
        let prefix = |text: &str| route(text, 0, &[]).prefix;
        for (text, address, expected) in [
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("192.0.2.0/24", "192.0.2.255", true),
            ("192.0.2.0/24", "192.0.3.0", false),
            ("2001:db8::/32", "2001:db8:ffff::", true),
            ("2001:db8::1/128", "2001:db8::2", false),
        ] {
            assert_eq!(prefix(text).contains(address.parse().unwrap()), expected, "{text}");
        }
    }
}
