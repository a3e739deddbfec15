//! Reads and adds an interface's addresses and routes as the kernel's own messages, as `ip address
//! restore` and `ip route restore` do.

use super::TakeoverError;
use crate::netlink::{Requests, is_one_of};
use crate::tables::LOCAL;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteProtocol,
    RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use std::io;
use std::net::IpAddr;

/// The kernel's errors for an address or a route that is not there.
const MISSING: [Errno; 4] = [Errno::SRCH, Errno::ADDRNOTAVAIL, Errno::NODEV, Errno::NOENT];

/// An interface's name and number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: u32,
}

impl Interface {
    /// Turns a kernel error into one of this interface.
    pub(super) fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> TakeoverError {
        let name = self.name.clone();
        move |source| TakeoverError::Kernel { name, what, source }
    }
}

/// Addresses and routes of one interface.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Settings {
    /// In the order in which they are added.
    pub(super) addresses: Vec<AddressMessage>,
    pub(super) routes: Vec<RouteMessage>,
}

impl Settings {
    /// Reads the interface's settings, except those that it needs to work.
    pub(super) fn read(requests: &mut Requests, index: u32) -> io::Result<Self> {
        let mut settings = Self::default();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = AddressMessage::default();
            (request.header.family, request.header.index) = (family, index);
            let mut found = Vec::new();
            requests.dump(RouteNetlinkMessage::GetAddress(request), &mut |message| {
                if let RouteNetlinkMessage::NewAddress(message) = message {
                    found.push(message);
                }
            })?;
            found.retain(|address| address.header.index == index && !is_link_local(address));
            // The kernel lists new addresses last for IPv4, and first for IPv6.
            if family == AddressFamily::Inet6 {
                found.reverse();
            }
            settings.addresses.append(&mut found);

            let mut request = RouteMessage::default();
            request.header.address_family = family;
            requests.dump(RouteNetlinkMessage::GetRoute(request), &mut |message| {
                if let RouteNetlinkMessage::NewRoute(message) = message
                    && is_movable(&message, index)
                {
                    settings.routes.push(as_request(message));
                }
            })?;
        }
        Ok(settings)
    }

    /// The same settings for another interface.
    pub(super) fn moved(&self, from: &Interface, to: &Interface) -> Self {
        let mut settings = self.clone();
        for message in &mut settings.addresses {
            message.header.index = to.index;
            for attribute in &mut message.attributes {
                match attribute {
                    AddressAttribute::Label(label) if *label == from.name => {
                        label.clone_from(&to.name);
                    }
                    // A moment ago the address was the host's: no other station has it.
                    AddressAttribute::Flags(flags) => *flags |= AddressFlags::Nodad,
                    _ => {}
                }
            }
        }
        for message in &mut settings.routes {
            for attribute in &mut message.attributes {
                match attribute {
                    RouteAttribute::Oif(index) => *index = to.index,
                    RouteAttribute::MultiPath(hops) => {
                        let its = hops.iter_mut().filter(|hop| hop.interface_index == from.index);
                        its.for_each(|hop| hop.interface_index = to.index);
                    }
                    _ => {}
                }
            }
        }
        settings
    }

    /// The same settings after `passed_s` seconds: some addresses expire.
    pub(super) fn aged(mut self, passed_s: u32) -> Self {
        let lifetimes = |message: &mut AddressMessage| {
            message.attributes.iter_mut().all(|attribute| {
                let AddressAttribute::CacheInfo(info) = attribute else { return true };
                let is_over = info.ifa_valid <= passed_s;
                for left_s in [&mut info.ifa_valid, &mut info.ifa_preferred] {
                    // The largest value means for ever.
                    if *left_s != u32::MAX {
                        *left_s = left_s.saturating_sub(passed_s);
                    }
                }
                !is_over
            })
        };
        let mut addresses = std::mem::take(&mut self.addresses);
        addresses.retain_mut(lifetimes);
        Self { addresses, ..self }
    }

    /// Deletes the settings from the interface. A missing one counts as deleted.
    pub(super) fn delete(&self, requests: &mut Requests, of: &Interface) -> io::Result<()> {
        let mut delete = |message| match requests.change(message, 0) {
            Err(error) if !is_one_of(&error, &MISSING) => {
                tracing::debug!("interface {}: {error}", of.name);
                Err(error)
            }
            _ => Ok(()),
        };
        for message in &self.routes {
            delete(RouteNetlinkMessage::DelRoute(message.clone()))?;
        }
        // With a primary address, the kernel also deletes its secondary ones.
        for message in self.addresses.iter().rev() {
            delete(RouteNetlinkMessage::DelAddress(message.clone()))?;
        }
        Ok(())
    }

    /// Adds the settings. An existing one counts as added. After an error, the rest is still added.
    pub(super) fn place(&self, requests: &mut Requests) -> io::Result<()> {
        let mut add = |message, flags| match requests.change(message, NLM_F_CREATE | flags) {
            Err(error) if !is_one_of(&error, &[Errno::EXIST]) => Err(error),
            _ => Ok(()),
        };
        let mut result = Ok(());
        for message in &self.addresses {
            result = result.and(add(RouteNetlinkMessage::NewAddress(message.clone()), 0));
        }
        // A gateway must be reachable by another route, which may come later in the list.
        let mut waiting: Vec<_> = self.routes.iter().collect();
        loop {
            let before = waiting.len();
            let mut last = Ok(());
            waiting.retain(|message| {
                let added =
                    add(RouteNetlinkMessage::NewRoute((*message).clone()), replaces(message));
                let is_waiting = added.is_err();
                if is_waiting {
                    last = added;
                }
                is_waiting
            });
            if waiting.is_empty() || waiting.len() == before {
                return result.and(last);
            }
        }
    }
}

/// Each interface has such addresses of its own.
fn is_link_local(message: &AddressMessage) -> bool {
    message.attributes.iter().any(|attribute| match attribute {
        AddressAttribute::Address(IpAddr::V6(address)) => address.is_unicast_link_local(),
        _ => false,
    })
}

/// Whether a route leads out of the interface, and could lead out of another one.
fn is_movable(message: &RouteMessage, index: u32) -> bool {
    let header = &message.header;
    let (mut table, mut leads, mut is_own) = (u32::from(header.table), false, false);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(its) => table = *its,
            RouteAttribute::Oif(its) => leads |= *its == index,
            RouteAttribute::MultiPath(hops) => {
                leads |= hops.iter().any(|hop| hop.interface_index == index);
            }
            RouteAttribute::Destination(RouteAddress::Inet6(to)) => {
                is_own |= to.is_unicast_link_local()
            }
            RouteAttribute::NhId(_) => is_own = true,
            _ => {}
        }
    }
    // The kernel itself makes the routes of table local, with addresses and interfaces.
    leads
        && !is_own
        && table != LOCAL
        && header.kind == RouteType::Unicast
        && header.protocol != RouteProtocol::Ra
        && !header.flags.contains(RouteFlags::Cloned)
}

/// The flag that makes a route replace its own remainder: when one of a route's interfaces goes,
/// IPv6 keeps the other paths.
fn replaces(message: &RouteMessage) -> u16 {
    let is_v6 = message.header.address_family == AddressFamily::Inet6;
    let has_paths = message
        .attributes
        .iter()
        .any(|attribute| matches!(attribute, RouteAttribute::MultiPath(_)));
    if is_v6 && has_paths { NLM_F_REPLACE } else { 0 }
}

/// Turns a route that the kernel listed into a request, without the state.
fn as_request(mut message: RouteMessage) -> RouteMessage {
    message.header.flags &= RouteFlags::from_bits_retain(RouteNextHopFlags::Onlink.bits().into());
    for attribute in &mut message.attributes {
        if let RouteAttribute::MultiPath(hops) = attribute {
            hops.iter_mut().for_each(|hop| hop.flags &= RouteNextHopFlags::Onlink);
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::address::CacheInfo;

    #[test]
    fn an_address_that_is_valid_for_a_time_has_less_of_it_left() {
        let address = |valid_s: u32, preferred_s: u32| {
            let mut info = CacheInfo::default();
            (info.ifa_valid, info.ifa_preferred) = (valid_s, preferred_s);
            let mut message = AddressMessage::default();
            message.attributes = vec![AddressAttribute::CacheInfo(info)];
            message
        };
        let aged = |addresses: &[(u32, u32)]| {
            let addresses = addresses
                .iter()
                .map(|&(valid_s, preferred_s)| address(valid_s, preferred_s))
                .collect();
            Settings { addresses, routes: Vec::new() }.aged(10).addresses
        };
        let ever = u32::MAX;
        assert_eq!(aged(&[(ever, ever)]), [address(ever, ever)]);
        assert_eq!(aged(&[(11, 5), (10, 5), (ever, 30)]), [address(1, 0), address(ever, 20)]);
    }
}
