//! Next hops of outgoing packets: a port's neighbour from the configuration, or the kernel's
//! routes.

use crate::answer;
use crate::config::{self, Config};
use crate::exception::KernelInterface;
use crate::failure::BadInput;
use hotloop::engine::Routed;
use hotloop::packet::PacketBuf;
use hotloop::stage::neighbours::{Next, NextHop, NextHops};
use hotloop_balancer::balance::Route;
use hotloop_kernel::{
    CoreRoutes, HopChange, Hops, KernelHop, KernelNextHops, PacketRoutes, RoutedPort, Way,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A destination that isn't resolved yet.
const UNRESOLVED: [u8; 6] = [0; 6];

/// Selects the next hops of a worker's packets.
#[derive(Debug)]
pub struct NextHopSelector<'a> {
    /// The neighbours of ports, if the configuration has their addresses.
    pub by_port: &'a [Option<NextHop>],
    /// Whether the kernel also sends packets. It has resolved their destinations.
    pub has_kernel: bool,
    /// The kernel's routes, if packets use them.
    pub by_kernel: Option<CoreRoutes<Route>>,
}

impl<P: PacketBuf> NextHops<Routed<P, Route>> for NextHopSelector<'_> {
    #[inline]
    fn next(&mut self, item: &mut Routed<P, Route>) -> Next {
        if self.has_kernel && item.packet.data().first_chunk() != Some(&UNRESOLVED) {
            return Next::AsIs;
        }
        if let Some(by_kernel) = &self.by_kernel
            // A waiting packet already has a port.
            && (item.route == Route::BY_KERNEL || by_kernel.has_port(item.route))
        {
            return by_kernel.next(item);
        }
        let hop = self.by_port.get(usize::from(item.route.0)).copied().flatten();
        hop.map_or(Next::AsIs, Next::To)
    }

    #[inline]
    fn take_up(&mut self) {
        if let Some(by_kernel) = &mut self.by_kernel {
            by_kernel.take_up();
        }
    }
}

/// The ports that use the kernel's next hops.
pub fn routed_ports(config: &Config, interfaces: &[KernelInterface]) -> Vec<RoutedPort<Route>> {
    let by_kernel = interfaces.iter().filter(|interface| {
        config.ports[usize::from(interface.wire().0)].next_hop == config::NextHop::Kernel
    });
    let routed = by_kernel.map(|interface| RoutedPort {
        interface_index: interface.port().interface_index(),
        mac: interface.port().mac(),
        port: interface.wire(),
        kernel: interface.route(),
    });
    routed.collect()
}

/// Follows the kernel's routes by the interfaces of these ports.
///
/// # Errors
/// The kernel's error, if it provides no sockets or threads.
pub fn follow(
    ports: &[RoutedPort<Route>],
) -> Result<(PacketRoutes<Route>, KernelNextHops), BadInput> {
    PacketRoutes::follow(ports)
        .map_err(|error| BadInput::new(format!("the kernel's routes can't be followed: {error}")))
}

/// The control thread's part: it keeps next hops resolved, and logs their changes.
#[derive(Debug)]
pub struct KernelHopWatch {
    next_hops: KernelNextHops,
    /// The names of the ports and of their interfaces, by the index of the interface.
    names: Vec<(String, String)>,
    /// The configuration with the backends whose next hops are kept resolved.
    config: Option<Arc<Config>>,
    hops: Arc<Hops>,
}

impl KernelHopWatch {
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
        for (hop, change) in hops.changes(&self.hops) {
            let (to, state) = (self.to(hop), hop.state());
            match change {
                HopChange::Known => tracing::info!("next hop {to}: {state}"),
                HopChange::Lost => {
                    tracing::warn!("next hop {to}: {state}; ctl next-hops shows more");
                }
                HopChange::Failed => tracing::warn!("next hop {to}: {state}"),
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
    pub fn rows(&self) -> impl Iterator<Item = answer::NextHop> {
        self.hops.iter().map(|hop| {
            let (names, address) = match &hop.way {
                Way::Neighbour { interface, address } => {
                    (Some(&self.names[*interface]), Some(*address))
                }
                _ => (None, None),
            };
            let mac = hop.neighbour.and_then(|neighbour| neighbour.mac).map(|mac| mac.to_string());
            answer::NextHop {
                port: names.map(|(port, _)| port.clone()),
                address,
                mac,
                state: hop.state().to_string(),
                age_s: None,
                backends: Some(hop.destination_count),
            }
        })
    }
}
