//! The addresses of the host.

use super::netlink::Requests;
use super::tables::local_address;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

/// Every address of the calling thread's network namespace, as it is now. A program that answers for one
/// of them has the kernel answer as well, with RST for TCP.
///
/// # Errors
/// The kernel's, where it gives no such socket.
pub fn local_addresses() -> io::Result<BTreeSet<IpAddr>> {
    let mut addresses = BTreeSet::new();
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    Requests::open()?.dump(request, &mut |message| addresses.extend(local_address(&message)))?;
    Ok(addresses)
}
