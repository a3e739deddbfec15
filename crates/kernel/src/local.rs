//! The addresses of the host.

use super::netlink::Requests;
use super::tables::local_address;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

/// Returns the current addresses of the calling thread's network namespace. If a program answers
/// for one of them, so does the kernel, with RST for TCP.
///
/// # Errors
/// The kernel refuses the socket.
pub fn local_addresses() -> io::Result<BTreeSet<IpAddr>> {
    let mut addresses = BTreeSet::new();
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    Requests::open()?.dump(request, &mut |message| addresses.extend(local_address(&message)))?;
    Ok(addresses)
}
