//! Watches the interfaces that have the sockets' addresses.

use hotloop::stage::{Device, DeviceCounters, LinkState, Reopening};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// An address of one of the machine's interfaces. As a device of a run, it reports when packets can
/// no longer pass there.
#[derive(Debug)]
pub struct Local(IpAddr);

/// The devices for a run with sockets at these addresses: one for each address of an interface.
#[must_use]
pub fn of(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<Arc<Local>> {
    let all: BTreeSet<_> = addresses.into_iter().map(|address| address.ip()).collect();
    // The unspecified address, groups, and addresses that are local because of a route belong to no
    // interface.
    let known = all.into_iter().filter(|address| state(*address) == Some(LinkState::Up));
    known.map(|address| Arc::new(Local(address))).collect()
}

/// The devices of these interfaces, and the sockets.
pub fn and_sockets(interfaces: &[Arc<Local>], sockets: Arc<dyn Device>) -> Vec<Arc<dyn Device>> {
    let interfaces = interfaces.iter().map(|interface| Arc::clone(interface) as Arc<dyn Device>);
    interfaces.chain([sockets]).collect()
}

/// The state of the interface with this address; `None` if the kernel does not report it.
fn state(address: IpAddr) -> Option<LinkState> {
    let mut all = getifaddrs().ok()?;
    let found = all.find(|one| {
        let Some(of_interface) = &one.address else { return false };
        let v4 = of_interface.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        let v6 = of_interface.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip()));
        v4.or(v6) == Some(address)
    });
    Some(match found {
        Some(one) if one.flags.contains(InterfaceFlags::IFF_RUNNING) => LinkState::Up,
        Some(_) => LinkState::Down,
        None => LinkState::Gone,
    })
}

impl Device for Local {
    fn name(&self) -> String {
        self.0.to_string()
    }

    /// None: the sockets have counters of their own.
    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }

    fn link_state(&self) -> Option<LinkState> {
        state(self.0)
    }

    /// A socket receives again as soon as an interface has its address.
    fn reopen(&self) -> Result<Reopening, hotloop::Error> {
        Ok(Reopening::Waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_interfaces_are_followed() {
        let addresses = ["127.0.0.1:1", "127.0.0.1:2", "0.0.0.0:1", "224.0.0.9:1", "192.0.2.1:1"];
        let devices = of(addresses.map(|address| address.parse().unwrap()));
        let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
        assert_eq!(names, ["127.0.0.1"]);
        assert_eq!(devices[0].link_state(), Some(LinkState::Up));
        assert_eq!(state("192.0.2.1".parse().unwrap()), Some(LinkState::Gone));
    }
}
