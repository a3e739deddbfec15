//! Next hops of outgoing packets: a port's neighbour from the configuration, or the kernel's
//! routes.

use crate::config::{self, Config};
use crate::exception::KernelInterface;
use crate::failure::BadInput;
use hotloop::engine::{Deployment, PerCore, Routed, Subscriber, publish};
use hotloop::packet::PacketBuf;
use hotloop::packet::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6, MacAddress};
use hotloop::stage::Core;
use hotloop::stage::neighbours::{Neighbours, Next, NextHop, NextHops};
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
        (ETHERTYPE_IPV4, at) => {
            frame.get(at + 16..)?.first_chunk::<4>().map(|address| (*address).into())
        }
        (ETHERTYPE_IPV6, at) => {
            frame.get(at + 24..)?.first_chunk::<16>().map(|address| (*address).into())
        }
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
    let by_kernel = interfaces.iter().filter(|interface| {
        config.ports[usize::from(interface.wire().0)].next_hop == config::NextHop::Kernel
    });
    let exits = by_kernel.map(|interface| {
        let port = interface.port();
        let exit = Exit { port: interface.wire(), mac: port.mac(), kernel: interface.route() };
        (port.interface_index(), exit)
    });
    exits.collect()
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
    let next_hops = KernelNextHops::start(follower, interfaces, fed, routes, publisher);
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
        let ports = config.ports.iter().filter(|port| port.next_hop == config::NextHop::Kernel);
        let names =
            ports.filter_map(|port| Some((port.name.clone(), port.kernel_interface.clone()?)));
        Self { names: names.collect(), next_hops, config: None, hops: Arc::default() }
    }

    /// Follows the configuration and the kernel, and logs changes.
    pub fn turn(&mut self, config: &Arc<Config>) {
        if !self.config.as_ref().is_some_and(|followed| Arc::ptr_eq(followed, config)) {
            let backends = config.services.iter().flat_map(|service| &service.backends);
            let backends: BTreeSet<_> = backends.map(|backend| backend.address).collect();
            self.next_hops.keep_resolved(backends.into_iter().collect());
            self.config = Some(Arc::clone(config));
        }
        let hops = self.next_hops.hops();
        if !Arc::ptr_eq(&hops, &self.hops) {
            self.log_changes(&hops);
            self.hops = hops;
        }
    }

    /// Logs the next hops that are known now, are no longer known or have failed.
    fn log_changes(&self, hops: &Hops) {
        let before: HashMap<_, _> = self.hops.iter().map(|hop| (&hop.way, hop)).collect();
        for hop in hops.iter().filter(|hop| hop.destination_count > 0) {
            let before = before.get(&hop.way);
            let (was_known, is_known) = (before.is_some_and(|hop| hop.is_known()), hop.is_known());
            let (to, state) = (self.to(hop), hop.state());
            match (was_known, is_known) {
                (false, true) => tracing::info!("next hop {to}: {state}"),
                (true, false) => tracing::warn!("next hop {to}: {state}; ctl next-hops shows more"),
                (false, false)
                    if hop.has_failed() && !before.is_some_and(|hop| hop.has_failed()) =>
                {
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
            let mac = hop.neighbour.and_then(|neighbour| neighbour.mac).map(|mac| mac.to_string());
            row(
                names.map(|(port, _)| port),
                address,
                mac,
                &hop.state(),
                Some(hop.destination_count),
            )
        })
    }
}

/// A row of `ctl next-hops`.
pub(crate) fn row(
    port: Option<&String>,
    address: Option<String>,
    mac: Option<String>,
    state: &str,
    backends: Option<usize>,
) -> Value {
    json!({ "port": port, "address": address, "mac": mac, "state": state, "backends": backends })
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
