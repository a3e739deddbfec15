//! Next hops of outgoing packets: a port's neighbour from the configuration, or the kernel's
//! routes.

use crate::config::{self, Config};
use crate::dropped::{is_due, since};
use crate::exception::KernelInterface;
use crate::failure::BadInput;
use hotloop::engine::{Deployment, PerCore, Routed, Subscriber, publish};
use hotloop::packet::PacketBuf;
use hotloop::packet::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6, MacAddress};
use hotloop::stage::neighbours::{Neighbour, Neighbours, Next, NextHop, NextHops};
use hotloop::stage::{Core, Instant};
use hotloop_balancer::balance::Route;
use hotloop_kernel::{Hops, KernelFollower, KernelHop, KernelNextHops, KernelRoutes, Onward, Way};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// Room for the kernel's neighbours: the kernel's own limit is 1,024 by default, and with eight
/// slots for each, collisions are rare.
const NEIGHBOURS_MAX: usize = 8_192;

/// A destination that isn't resolved yet.
const UNRESOLVED: [u8; 6] = [0; 6];

/// A port for packets that the kernel's routes send to its interface.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// The port.
    pub port: Route,
    /// The Ethernet address of the port and its interface.
    pub mac: MacAddress,
    /// The route to the kernel by the port's interface.
    pub kernel: Route,
}

/// The state for workers that use the kernel's routes.
#[derive(Debug)]
pub struct ByKernel {
    neighbours: Arc<Neighbours>,
    routes: PerCore<Subscriber<KernelRoutes>>,
    /// The exits, by the index of the interface.
    exits: Arc<[Exit]>,
}

impl ByKernel {
    /// The neighbours that the kernel knows, and those that workers request from it.
    pub(crate) fn neighbours(&self) -> Arc<Neighbours> {
        Arc::clone(&self.neighbours)
    }

    /// A worker's own state, which it takes once.
    pub(crate) fn of(&self, core: &Core) -> Option<KernelExits> {
        let routes = self.routes.take(core)?;
        Some(KernelExits { routes, exits: Arc::clone(&self.exits) })
    }
}

/// A worker's exits by the kernel's routes.
#[derive(Debug)]
pub struct KernelExits {
    routes: Subscriber<KernelRoutes>,
    exits: Arc<[Exit]>,
}

impl KernelExits {
    /// Whether the kernel's routes select the port of a packet without a destination. A waiting
    /// packet already has a port.
    fn takes(&self, route: Route) -> bool {
        route == Route::BY_KERNEL || self.exits.iter().any(|exit| exit.port == route)
    }

    fn next<P: PacketBuf>(&self, item: &mut Routed<P, Route>) -> Next {
        let Some(destination) = destination(item.packet.data()) else { return Next::NoRoute };
        match self.routes.current().lookup(destination) {
            Onward::Via { interface, neighbour } => {
                let exit = &self.exits[interface];
                item.route = exit.port;
                Next::To(NextHop::of_system(neighbour, exit.mac))
            }
            Onward::Local => {
                let exit = &self.exits[0];
                item.route = exit.kernel;
                ethernet::set_addresses(&mut item.packet, exit.mac, exit.mac);
                Next::AsIs
            }
            Onward::Nowhere => Next::NoRoute,
        }
    }
}

fn destination(frame: &[u8]) -> Option<IpAddr> {
    match ethernet::network_layer(frame)? {
        (ETHERTYPE_IPV4, at) => frame.get(at + 16..)?.first_chunk::<4>().map(|it| (*it).into()),
        (ETHERTYPE_IPV6, at) => frame.get(at + 24..)?.first_chunk::<16>().map(|it| (*it).into()),
        _ => None,
    }
}

/// Selects the next hops of a worker's packets.
#[derive(Debug)]
pub struct Onwards<'a> {
    /// The neighbours of ports, if the configuration has their addresses.
    pub by_port: &'a [Option<NextHop>],
    /// Whether the kernel also sends packets. It has resolved their destinations.
    pub has_kernel: bool,
    /// The kernel's routes, if packets use them.
    pub by_kernel: Option<KernelExits>,
}

impl<P: PacketBuf> NextHops<Routed<P, Route>> for Onwards<'_> {
    #[inline]
    fn next(&mut self, item: &mut Routed<P, Route>) -> Next {
        if self.has_kernel && item.packet.data().first_chunk() != Some(&UNRESOLVED) {
            return Next::AsIs;
        }
        if let Some(by_kernel) = &self.by_kernel
            && by_kernel.takes(item.route)
        {
            return by_kernel.next(item);
        }
        let hop = self.by_port.get(usize::from(item.route.0)).copied().flatten();
        hop.map_or(Next::AsIs, Next::To)
    }

    #[inline]
    fn take_up(&mut self) {
        if let Some(by_kernel) = &mut self.by_kernel {
            by_kernel.routes.take_up();
        }
    }
}

/// The ports that use the kernel's next hops, with the numbers of their interfaces.
pub fn exits(config: &Config, interfaces: &[KernelInterface]) -> Vec<(u32, Exit)> {
    let by_kernel = interfaces
        .iter()
        .filter(|it| config.ports[usize::from(it.wire().0)].next_hop == config::NextHop::Kernel);
    let exit = by_kernel.map(|it| {
        let exit = Exit { port: it.wire(), mac: it.port().mac(), kernel: it.route() };
        (it.port().interface_index(), exit)
    });
    exit.collect()
}

/// Follows the kernel's routes by these interfaces, for the workers of a deployment.
///
/// # Errors
/// The kernel's error, if it provides no sockets or threads.
pub fn follow(
    exits: &[(u32, Exit)],
    deployment: Deployment,
) -> Result<(ByKernel, KernelNextHops), BadInput> {
    let failed = |error| BadInput::new(format!("the kernel's routes can't be followed: {error}"));
    let follower = KernelFollower::start().map_err(failed)?;
    let (interfaces, exits): (Vec<_>, Vec<_>) = exits.iter().copied().unzip();
    let routes = follower.read(|tables| Arc::new(KernelRoutes::new(tables, &interfaces)));
    let (publisher, subscribers) = publish(Arc::clone(&routes), deployment, 1);
    let neighbours = Neighbours::new(NEIGHBOURS_MAX);
    let fed = Arc::clone(&neighbours);
    let next_hops = KernelNextHops::start(follower, interfaces, fed, (routes, publisher));
    let by_kernel = ByKernel { neighbours, routes: subscribers, exits: exits.into() };
    Ok((by_kernel, next_hops.map_err(failed)?))
}

/// The control thread's part: it keeps next hops resolved, and logs their changes.
#[derive(Debug)]
pub struct NextHopWatch {
    next_hops: KernelNextHops,
    /// The names of the ports and of their interfaces, by the index of the interface.
    names: Vec<(String, String)>,
    /// The configuration with the backends whose next hops are kept resolved.
    config: Option<Arc<Config>>,
    hops: Arc<Hops>,
}

impl NextHopWatch {
    /// Begins to watch.
    #[must_use]
    pub fn new(next_hops: KernelNextHops, config: &Config) -> Self {
        let ports = config.ports.iter().filter(|it| it.next_hop == config::NextHop::Kernel);
        let names = ports.filter_map(|it| Some((it.name.clone(), it.kernel_interface.clone()?)));
        Self { names: names.collect(), next_hops, config: None, hops: Arc::default() }
    }

    /// Follows the configuration and the kernel, and logs changes.
    pub fn turn(&mut self, config: &Arc<Config>) {
        if !self.config.as_ref().is_some_and(|it| Arc::ptr_eq(it, config)) {
            let services = config.services.iter();
            let backends = services.flat_map(|it| it.backends.iter().map(|it| it.address));
            let backends: BTreeSet<_> = backends.collect();
            self.next_hops.keep_resolved(backends.into_iter().collect());
            self.config = Some(Arc::clone(config));
        }
        let hops = self.next_hops.hops();
        if !Arc::ptr_eq(&hops, &self.hops) {
            self.say(&hops);
            self.hops = hops;
        }
    }

    fn say(&self, hops: &Hops) {
        let before: HashMap<_, _> = self.hops.iter().map(|hop| (&hop.way, hop)).collect();
        for hop in hops.iter().filter(|hop| hop.destination_count > 0) {
            let before = before.get(&hop.way);
            let (was_known, is_known) = (before.is_some_and(|it| it.is_known()), hop.is_known());
            let (to, state) = (self.to(hop), hop.state());
            match (was_known, is_known) {
                (false, true) => tracing::info!("next hop {to}: {state}"),
                (true, false) => tracing::warn!("next hop {to}: {state}; ctl next-hops shows more"),
                (false, false) if hop.has_failed() && !before.is_some_and(|it| it.has_failed()) => {
                    tracing::warn!("next hop {to}: {state}");
                }
                _ => {}
            }
        }
    }

    /// The path to a next hop, for a message.
    fn to(&self, hop: &KernelHop) -> String {
        let count = hop.destination_count;
        let of = format!("for {count} backend{}", if count == 1 { "" } else { "s" });
        match &hop.way {
            Way::Neighbour { interface, address } => {
                format!("{address} on {} {of}", self.names[*interface].1)
            }
            Way::Local | Way::Elsewhere(_) | Way::Nowhere(_) => of,
        }
    }

    /// The present next hops.
    #[must_use]
    pub const fn hops(&self) -> &Arc<Hops> {
        &self.hops
    }

    /// A row of `ctl next-hops` for each next hop.
    pub fn rows(&self) -> impl Iterator<Item = Value> {
        self.hops.iter().map(|hop| {
            let (names, address) = match &hop.way {
                Way::Neighbour { interface, address } => {
                    (Some(&self.names[*interface]), Some(address.to_string()))
                }
                _ => (None, None),
            };
            let mac = hop.neighbour.and_then(|it| it.mac).map(|mac| mac.to_string());
            row(names.map(|it| &it.0), address, mac, &hop.state(), Some(hop.destination_count))
        })
    }
}

/// A row of `ctl next-hops`.
fn row(
    port: Option<&String>,
    address: Option<String>,
    mac: Option<String>,
    state: &str,
    backends: Option<usize>,
) -> Value {
    json!({ "port": port, "address": address, "mac": mac, "state": state, "backends": backends })
}

/// How long a neighbour is used after it stopped answering.
const NEIGHBOUR_NS: u64 = 60_000_000_000;

/// The next hops of ports in the configuration, and their Ethernet addresses as far as known.
#[derive(Debug, Default)]
pub struct PortHops {
    neighbours: Option<Arc<Neighbours>>,
    /// The next hops with IP addresses, with the names of their ports.
    hops: Vec<(String, NextHop)>,
    /// What was last found of each of them.
    found: Vec<Found>,
}

/// What was last found of a next hop.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    known: Option<Neighbour>,
    /// The claims that were reported, modulo 65,536, and when.
    claim_count: u16,
    claims_at: Option<Instant>,
}

impl Found {
    /// Reports what has changed: other stations that claim the address at most once in
    /// [`MESSAGE_INTERVAL_NS`](crate::dropped::MESSAGE_INTERVAL_NS), unless it `is_end` of the run.
    fn follow(&mut self, port: &str, neighbour: Neighbour, (now, is_end): (Instant, bool)) {
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
        if new_count > 0 && (is_end || is_due(self.claims_at, now)) {
            self.claim_count = count;
            let since = since(self.claims_at.replace(now));
            let claims = if new_count == 1 { "claim" } else { "claims" };
            tracing::info!(
                port,
                "neighbour {address}: {other} claims it, so its own station is asked; {new_count} {claims} since {since}"
            );
        }
    }
}

impl PortHops {
    /// Makes this from the ports' next hops, in the order of the configuration.
    #[must_use]
    pub fn new(
        neighbours: Arc<Neighbours>,
        config: &Config,
        next_hops: &[Option<NextHop>],
    ) -> Self {
        let hops = config.ports.iter().zip(next_hops);
        let hops = hops.filter_map(|(port, hop)| Some((port.name.clone(), (*hop)?)));
        let hops: Vec<_> = hops.collect();
        Self { neighbours: Some(neighbours), found: vec![Found::default(); hops.len()], hops }
    }

    /// The known state of each next hop.
    fn states(&self, now: Instant) -> impl Iterator<Item = (&String, Option<Neighbour>)> {
        self.hops.iter().map(move |(port, hop)| {
            let neighbours = self.neighbours.as_ref();
            (port, neighbours.and_then(|it| it.get(hop.link(), hop.address(), now)))
        })
    }

    /// Reports what has changed of the next hops; with `is_end`, everything that was not reported yet.
    pub fn report(&mut self, now: Instant, is_end: bool) {
        let Some(neighbours) = &self.neighbours else { return };
        for ((port, hop), found) in self.hops.iter().zip(&mut self.found) {
            if let Some(neighbour) = neighbours.get(hop.link(), hop.address(), now) {
                found.follow(port, neighbour, (now, is_end));
            }
        }
    }

    /// A row of `ctl next-hops` for each that the configuration gives.
    pub fn rows(&self, config: &Config, now: Instant) -> impl Iterator<Item = Value> {
        let states: HashMap<_, _> = self.states(now).collect();
        config.ports.iter().filter_map(move |port| {
            let address = match port.next_hop {
                config::NextHop::Mac(mac) => {
                    let mac = Some(MacAddress::new(mac).to_string());
                    return Some(row(Some(&port.name), None, mac, "configured", None));
                }
                config::NextHop::V4(address, _) => address.to_string(),
                config::NextHop::V6(address, _) => address.to_string(),
                config::NextHop::Kernel => return None,
            };
            let known = states.get(&port.name).copied().flatten();
            let mac = known.map(|it| it.mac.to_string());
            let state = known.map_or_else(|| "unknown".into(), |it| it.state.to_string());
            let mut row = row(Some(&port.name), Some(address), mac, &state, None);
            row["age_s"] = json!(known.map(|it| now.ns_since(it.confirmed) / 1_000_000_000));
            Some(row)
        })
    }

    /// The neighbours in recent use, with the names of their ports: without neighbours that stopped
    /// answering long before the others did.
    #[must_use]
    pub fn known(&self) -> Vec<(String, IpAddr, MacAddress)> {
        let states = self.states(Instant::from_ns(0));
        let known: Vec<_> = states.filter_map(|(port, known)| Some((port, known?))).collect();
        let latest = known.iter().map(|(_, it)| it.confirmed).max();
        let lately = known.into_iter().filter(|(_, it)| {
            latest.is_some_and(|latest| latest.ns_since(it.confirmed) < NEIGHBOUR_NS)
        });
        lately.map(|(port, it)| (port.clone(), it.address, it.mac)).collect()
    }

    /// Begins with the predecessor's knowledge of next hops that are also this program's.
    pub fn inherit(&self, known: &[(String, IpAddr, MacAddress)]) {
        let Some(neighbours) = &self.neighbours else { return };
        for (port, address, mac) in known {
            let hops = self.hops.iter().filter(|it| it.0 == *port && it.1.address() == *address);
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
    use hotloop::packet::PortId;
    use hotloop::packet::build::udp;

    #[test]
    fn destinations_are_read_where_frames_have_them() {
        for address in ["192.0.2.7", "2001:db8::7"] {
            let to = if address.contains(':') {
                format!("[{address}]:9")
            } else {
                format!("{address}:9")
            };
            let from = if address.contains(':') { "[2001:db8::1]:9" } else { "192.0.2.1:9" };
            let frame = udp().from(from).to(to).build();
            assert_eq!(destination(&frame), address.parse().ok());
            assert_eq!(destination(&frame[..20]), None);
        }
    }

    /// The ports of a balancer: two with the same next hop, on links of their own.
    fn port_hops() -> (Config, PortHops, Arc<Neighbours>) {
        let port = |name: &str, next_hop: &str| {
            format!("[[port]]\nname = \"{name}\"\ndevice = \"net_null{name}\"\n{next_hop}\n")
        };
        let by_address = "next_hop = \"fe80::1\"\naddress = \"fe80::2\"";
        let ports = [
            port("0", by_address),
            port("1", by_address),
            port("2", "next_hop_mac = \"02:00:00:00:02:01\""),
        ];
        let balancer = "[balancer]\nsource_v4 = \"192.0.2.1\"\nsource_v6 = \"2001:db8::1\"\nmtu = 1500\n\
                        decapsulate = []\n";
        let service = "[[service]]\nname = \"web\"\naddress = \"203.0.113.10\"\nprotocol = \"tcp\"\n\
                       ports = \"any\"\n[[service.backend]]\naddress = \"10.0.0.1\"\n";
        let text = format!("{balancer}{}{service}", ports.concat());
        let config = Config::parse("lb.toml", &text).unwrap();
        let mac = MacAddress::new([2, 0, 0, 0, 9, 9]);
        let numbered = (0..).map(PortId::new).zip(&config.ports);
        let hops: Vec<_> = numbered.map(|(id, port)| port.hop(id, mac)).collect();
        let neighbours = Neighbours::new(8);
        let port_hops = PortHops::new(Arc::clone(&neighbours), &config, &hops);
        (config, port_hops, neighbours)
    }

    #[test]
    fn next_hops_of_ports_are_shown_with_the_address_in_use_its_state_and_age() {
        let (config, port_hops, neighbours) = port_hops();
        let second = |count: u64| Instant::from_ns(count * 1_000_000_000);
        let mac = MacAddress::new([2, 0, 0, 0, 0, 1]);
        let hop = port_hops.hops[1].1;
        neighbours.learn(hop.link(), hop.address(), mac, second(3));
        let shown = |now| -> Vec<String> {
            let row = |row: Value| {
                ["port", "address", "mac", "state", "age_s"]
                    .map(|key| row[key].to_string())
                    .join(" ")
            };
            port_hops.rows(&config, now).map(row).map(|row| row.replace('"', "")).collect()
        };
        let fixed = "2 null 02:00:00:00:02:01 configured null";
        let known = |state| format!("1 fe80::1 02:00:00:00:00:01 {state}");
        let unknown = |port| format!("{port} fe80::1 null unknown null");
        assert_eq!(shown(second(10)), [unknown(0), known("reachable 7"), fixed.into()]);
        assert_eq!(shown(second(40)), [unknown(0), known("stale 37"), fixed.into()]);
        let _ = neighbours.question(&hop, second(41));
        assert_eq!(shown(second(42)), [unknown(0), known("probing 39"), fixed.into()]);
        assert_eq!(shown(second(63)), [unknown(0), unknown(1), fixed.into()]);
    }

    #[test]
    fn a_successor_begins_with_the_neighbours_of_each_port() {
        let (_, before, neighbours) = port_hops();
        let (hop, mac) = (before.hops[1].1, MacAddress::new([2, 0, 0, 0, 0, 1]));
        neighbours.learn(hop.link(), hop.address(), mac, Instant::from_ns(5));
        let known = before.known();
        assert_eq!(known, [("1".to_owned(), hop.address(), mac)]);
        let (_, after, _) = port_hops();
        after.inherit(&known);
        assert_eq!(after.known(), known);
    }

    #[test]
    fn a_claim_is_reported_at_most_once_in_ten_seconds_and_in_the_end() {
        let (_, mut hops, neighbours) = port_hops();
        let (hop, mac) = (hops.hops[1].1, MacAddress::new([2, 0, 0, 0, 0, 1]));
        let second = |count: u64| Instant::from_ns(count * 1_000_000_000);
        neighbours.learn(hop.link(), hop.address(), mac, second(0));
        hops.report(second(0), false);
        let known = hops.found[1].known;
        let mut reported = |at, count, is_end| {
            let claimed_by = Some((MacAddress::new([2, 0, 0, 0, 0, 9]), count));
            let neighbour = Neighbour { claimed_by, ..known.unwrap() };
            hops.found[1].follow("1", neighbour, (second(at), is_end));
            hops.found[1].claim_count
        };
        assert_eq!(
            [reported(1, 1, false), reported(2, 5, false), reported(11, 6, false)],
            [1, 1, 6]
        );
        assert_eq!([reported(12, 7, false), reported(12, 7, true)], [6, 7]);
    }
}
