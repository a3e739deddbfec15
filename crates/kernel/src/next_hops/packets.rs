//! Next hops of packets by the kernel's routes, on cores.

use super::KernelNextHops;
use crate::follower::KernelFollower;
use crate::routes::{KernelRoutes, RouteTarget};
use hotloop_engine::{Routed, Subscriber, Subscribers, publish};
use hotloop_neighbours::{Neighbours, Next, NextHop};
use hotloop_packet::PacketBuf;
use hotloop_packet::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6, MacAddress};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// Room for the kernel's neighbours: the kernel's own limit is 1,024 by default, and with eight
/// slots for each, collisions are rare.
const NEIGHBOURS_MAX: usize = 8_192;

/// A port for packets that the kernel's routes send to its interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RoutedPort<R> {
    /// The number of the interface in the kernel.
    pub interface_index: u32,
    /// The Ethernet address of the port and its interface.
    pub mac: MacAddress,
    /// The outlet of the port.
    pub port: R,
    /// The outlet to the kernel, by the port's interface.
    pub kernel: R,
}

/// The kernel's routes for packets on cores.
#[derive(Debug)]
pub struct PacketRoutes<R> {
    neighbours: Arc<Neighbours>,
    routes: Subscribers<KernelRoutes>,
    ports: Arc<[RoutedPort<R>]>,
}

impl<R: Copy + Eq> PacketRoutes<R> {
    /// Follows the kernel's routes by the interfaces of these ports.
    ///
    /// # Errors
    /// The kernel's error, if it provides no sockets or threads.
    pub fn follow(ports: &[RoutedPort<R>]) -> io::Result<(Self, KernelNextHops)> {
        let follower = KernelFollower::start()?;
        let interfaces: Vec<_> = ports.iter().map(|port| port.interface_index).collect();
        let routes = follower.read(|tables| Arc::new(KernelRoutes::new(tables, &interfaces)));
        let (publisher, subscribers) = publish(Arc::clone(&routes));
        let neighbours = Neighbours::new(NEIGHBOURS_MAX);
        let fed = Arc::clone(&neighbours);
        let next_hops = KernelNextHops::start(follower, interfaces, fed, routes, publisher)?;
        Ok((Self { neighbours, routes: subscribers, ports: ports.into() }, next_hops))
    }

    /// The neighbours that the kernel knows, and those that cores request from it.
    #[must_use]
    pub fn neighbours(&self) -> Arc<Neighbours> {
        Arc::clone(&self.neighbours)
    }

    /// A core's own view, for a stage's factory.
    #[must_use]
    pub fn subscribe(&self) -> CoreRoutes<R> {
        CoreRoutes { routes: self.routes.subscribe(), ports: Arc::clone(&self.ports) }
    }
}

/// A core's view of the kernel's routes.
#[derive(Debug)]
pub struct CoreRoutes<R> {
    routes: Subscriber<KernelRoutes>,
    ports: Arc<[RoutedPort<R>]>,
}

impl<R: Copy + Eq> CoreRoutes<R> {
    /// Whether this is the outlet of one of the ports.
    #[inline]
    #[must_use]
    pub fn has_port(&self, outlet: R) -> bool {
        self.ports.iter().any(|routed| routed.port == outlet)
    }

    /// The next hop of a packet by its destination. Sets the packet's outlet, and the Ethernet
    /// addresses of a packet for the host itself.
    #[inline]
    pub fn next<P: PacketBuf>(&self, item: &mut Routed<P, R>) -> Next {
        let Some(destination) = destination(item.packet.data()) else { return Next::NoRoute };
        match self.routes.current().lookup(destination) {
            RouteTarget::Via { interface, neighbour } => {
                let routed = &self.ports[interface];
                item.route = routed.port;
                Next::To(NextHop::of_system(neighbour, routed.mac))
            }
            RouteTarget::Local => {
                let routed = &self.ports[0];
                item.route = routed.kernel;
                ethernet::set_addresses(&mut item.packet, routed.mac, routed.mac);
                Next::AsIs
            }
            RouteTarget::Nowhere => Next::NoRoute,
        }
    }

    /// Takes up changed routes, between two bursts.
    #[inline]
    pub fn take_up(&mut self) {
        self.routes.take_up();
    }
}

#[inline]
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

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_packet::build::udp;

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
