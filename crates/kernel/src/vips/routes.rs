//! Installs routes that announce VIPs to routing daemons.

use crate::netlink::{Requests, is_one_of};
use crate::tables::{MAIN, Route, parse_route};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::IpAddr;

/// The number that marks hotloop's routes for routing daemons (`rtm_protocol`, rtnetlink(7)): 104,
/// the letter `h`. The kernel, iproute2 and FRR don't use it. `/etc/iproute2/rt_protos.d` can name
/// it, but numbers work without.
pub const ROUTE_PROTOCOL: u8 = 104;

/// The default metric of hotloop's routes: larger than the defaults of administrators and the
/// kernel, for both IP versions.
pub const VIP_METRIC: u32 = 2_048;

/// A route to a VIP could not be installed or deleted.
#[derive(Debug, thiserror::Error)]
pub enum VipRouteError {
    /// Another program has a route for the VIP with the same metric.
    #[error(
        "a route to {vip} with metric {metric} is there already, by protocol {protocol} on interface \
         {interface_index}: delete it, or leave the VIP to it"
    )]
    Taken {
        /// The VIP.
        vip: IpAddr,
        /// The metric of both routes.
        metric: u32,
        /// The origin of the other route: `rtm_protocol`.
        protocol: u8,
        /// The other route's interface; 0 if it has none.
        interface_index: u32,
    },
    /// The kernel's error. Usually the interface is gone or not up, or the program lacks the right
    /// (`CAP_NET_ADMIN`).
    #[error(
        "the kernel does not {action} the route to {vip} on interface {interface_index}: {source}; the \
         interface has to be there and up, and the program to have CAP_NET_ADMIN"
    )]
    Kernel {
        /// The refused action.
        action: &'static str,
        /// The VIP.
        vip: IpAddr,
        /// The interface.
        interface_index: u32,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The routes to VIPs on an interface that the program owns: /32 and /128, in the main table, with
/// protocol [`ROUTE_PROTOCOL`], of scope link for IPv4. A routing daemon that learns routes of this
/// protocol announces them.
///
/// They are routes, not addresses: a kernel that owned a VIP would answer its clients itself.
///
/// The routes go away when this is dropped, and also when the interface does, as a TAP does with
/// its process.
pub struct VipRoutes {
    requests: Requests,
    interface_index: u32,
    metric: u32,
    installed: BTreeSet<IpAddr>,
}

impl VipRoutes {
    /// Starts with no routes on this interface of the calling thread's network namespace: routes
    /// that an earlier program has left there are deleted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin(interface_index: u32, metric: u32) -> io::Result<Self> {
        let mut routes = Self::open(interface_index, metric)?;
        routes.delete_found()?;
        Ok(routes)
    }

    /// As [`begin`](Self::begin), but keeps the routes that another process has
    /// [left](Self::leave).
    ///
    /// # Errors
    /// The kernel's.
    pub fn adopt(interface_index: u32, metric: u32) -> io::Result<Self> {
        let mut routes = Self::open(interface_index, metric)?;
        let found = routes.found()?.into_iter().filter(|(_, its)| *its == metric);
        routes.installed = found.map(|(vip, _)| vip).collect();
        Ok(routes)
    }

    /// Leaves the routes where they are, for another process that [adopts](Self::adopt) them.
    pub fn leave(mut self) {
        self.installed.clear();
    }

    /// As [`begin`](Self::begin), but neither deletes nor adopts existing routes.
    pub(super) fn open(interface_index: u32, metric: u32) -> io::Result<Self> {
        let requests = Requests::open()?;
        Ok(Self { requests, interface_index, metric, installed: BTreeSet::new() })
    }

    /// Deletes all of hotloop's routes on the interface, whoever installed them, and returns their
    /// VIPs. Stops at the first that can't be deleted.
    pub(super) fn delete_found(&mut self) -> io::Result<Vec<IpAddr>> {
        let found = self.found()?;
        found.into_iter().map(|(vip, metric)| self.delete(vip, metric).map(|()| vip)).collect()
    }

    /// Sets the routes to exactly `vips`, whatever has happened to them meanwhile: first deletes
    /// others, then installs missing ones. After an error the rest is still done; the next call
    /// tries again.
    ///
    /// # Errors
    /// One for each VIP whose route could not be deleted or installed.
    pub fn set(&mut self, vips: &BTreeSet<IpAddr>) -> Result<(), Vec<VipRouteError>> {
        let mut errors = self.delete_others(vips);
        match self.found() {
            Ok(found) => {
                for (vip, metric) in &found {
                    if *metric != self.metric || !vips.contains(vip) {
                        let deleted = self.delete(*vip, *metric);
                        errors
                            .extend(deleted.err().map(|source| self.error("delete", *vip, source)));
                    }
                }
                let is_ours = |(vip, metric): (IpAddr, u32)| (metric == self.metric).then_some(vip);
                self.installed = found.into_iter().filter_map(is_ours).collect();
            }
            // Assumes that the installed routes are still there.
            Err(error) => tracing::warn!("the routes of this program could not be read: {error}"),
        }
        for vip in vips {
            if !self.installed.contains(vip) {
                match self.install(*vip) {
                    Ok(()) => drop(self.installed.insert(*vip)),
                    Err(error) => errors.push(error),
                }
            }
        }
        self.installed.retain(|vip| vips.contains(vip));
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Deletes all routes. An ending program calls this first.
    ///
    /// # Errors
    /// One for each VIP whose route could not be deleted.
    pub fn withdraw(&mut self) -> Result<(), Vec<VipRouteError>> {
        let errors = self.delete_others(&BTreeSet::new());
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// The VIPs whose routes are installed.
    #[must_use]
    pub const fn installed(&self) -> &BTreeSet<IpAddr> {
        &self.installed
    }

    /// Deletes the installed routes that are not to `vips`.
    fn delete_others(&mut self, vips: &BTreeSet<IpAddr>) -> Vec<VipRouteError> {
        let mut errors = Vec::new();
        let others: Vec<_> = self.installed.difference(vips).copied().collect();
        for vip in others {
            match self.delete(vip, self.metric) {
                Ok(()) => drop(self.installed.remove(&vip)),
                Err(source) => errors.push(self.error("delete", vip, source)),
            }
        }
        errors
    }

    fn install(&mut self, vip: IpAddr) -> Result<(), VipRouteError> {
        let message = RouteNetlinkMessage::NewRoute(self.message(vip, self.metric));
        match self.requests.change(message, NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) => Ok(()),
            Err(error) if is_one_of(&error, &[Errno::EXIST]) => Err(self.taken(vip, error)),
            Err(source) => Err(self.error("install", vip, source)),
        }
    }

    /// Deletes a route. A missing one counts as deleted: its interface may have taken it along.
    fn delete(&mut self, vip: IpAddr, metric: u32) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelRoute(self.message(vip, metric));
        match self.requests.change(message, 0) {
            Err(error) if !is_one_of(&error, &[Errno::SRCH, Errno::NODEV]) => Err(error),
            _ => Ok(()),
        }
    }

    /// The route to a VIP.
    fn message(&self, vip: IpAddr, metric: u32) -> RouteMessage {
        let mut message = RouteMessage::default();
        let header = &mut message.header;
        (header.address_family, header.destination_prefix_length) = family(vip);
        header.table = MAIN as u8;
        header.protocol = RouteProtocol::Other(ROUTE_PROTOCOL);
        header.kind = RouteType::Unicast;
        header.scope = if vip.is_ipv4() { RouteScope::Link } else { RouteScope::Universe };
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::from(vip)),
            RouteAttribute::Oif(self.interface_index),
            RouteAttribute::Priority(metric),
        ];
        message
    }

    /// The routes of hotloop on the interface, with their metrics.
    fn found(&mut self) -> io::Result<Vec<(IpAddr, u32)>> {
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            message.header.table = MAIN as u8;
            message.header.protocol = RouteProtocol::Other(ROUTE_PROTOCOL);
            message.attributes = vec![RouteAttribute::Oif(self.interface_index)];
            let own_index = self.interface_index;
            let is_own = |route: &Route| {
                interface_index(route) == own_index && route.protocol == ROUTE_PROTOCOL
            };
            let dumped =
                self.requests.dump(RouteNetlinkMessage::GetRoute(message), &mut |message| {
                    found.extend(host_route(&message).filter(is_own));
                });
            match dumped {
                // The table, or IPv6, has never been used, or the interface is gone.
                Err(error)
                    if is_one_of(&error, &[Errno::NOENT, Errno::OPNOTSUPP, Errno::NODEV]) => {}
                result => drop(result?),
            }
        }
        Ok(found.into_iter().map(|route| (route.prefix.network(), route.metric)).collect())
    }

    /// Finds the route that is in the way, and names its owner.
    fn taken(&mut self, vip: IpAddr, source: io::Error) -> VipRouteError {
        let mut request = RouteMessage::default();
        request.header.address_family = family(vip).0;
        let (metric, mut other) = (self.metric, None);
        let _ = self.requests.dump(RouteNetlinkMessage::GetRoute(request), &mut |message| {
            let in_way = |route: &Route| route.prefix.network() == vip && route.metric == metric;
            other = other.take().or(host_route(&message).filter(in_way));
        });
        match other {
            Some(route) => VipRouteError::Taken {
                vip,
                metric,
                protocol: route.protocol,
                interface_index: interface_index(&route),
            },
            None => self.error("install", vip, source),
        }
    }

    const fn error(&self, action: &'static str, vip: IpAddr, source: io::Error) -> VipRouteError {
        VipRouteError::Kernel { action, vip, interface_index: self.interface_index, source }
    }
}

/// The route of a message, if it leads to one address and is in the main table.
fn host_route(message: &RouteNetlinkMessage) -> Option<Route> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return None };
    parse_route(message).filter(|route| route.table == MAIN && route.prefix.is_host())
}

/// The interface that a route leads out of first; 0 if it drops packets.
fn interface_index(route: &Route) -> u32 {
    route.hops.first().map_or(0, |hop| hop.interface_index)
}

/// The family of an address, and the length of the prefix that holds only this address.
const fn family(address: IpAddr) -> (AddressFamily, u8) {
    match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    }
}

impl Drop for VipRoutes {
    fn drop(&mut self) {
        for error in self.withdraw().err().into_iter().flatten() {
            tracing::warn!("{error}");
        }
    }
}

impl fmt::Debug for VipRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VipRoutes")
            .field("interface_index", &self.interface_index)
            .field("metric", &self.metric)
            .field("installed", &self.installed)
            .finish_non_exhaustive()
    }
}
