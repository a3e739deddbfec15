//! Opening of receiving sockets.

use hotloop_ops::Failure;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Time after which a waiting receiver checks whether it should end.
const WAIT: Duration = Duration::from_millis(100);

/// Options for opening sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketOptions {
    /// Whether several sockets share an address, each with flows of its own.
    pub reuseport: bool,
    /// The size of the buffer in bytes, as counted by the kernel: headers and its own data
    /// included.
    pub receive_buffer_bytes: Option<usize>,
}

/// Opens a socket at an address, or in the multicast group of that address.
///
/// # Errors
/// [`Failure::Input`] with the reason why the socket can't be opened, and the remedy.
pub fn open(address: SocketAddr, options: &SocketOptions) -> Result<UdpSocket, Failure> {
    let failed = |error: Errno| Failure::Input(format!("{address}: {}", reason(error, address)));
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let socket = socket.map_err(failed)?;
    sockopt::set_socket_reuseport(&socket, options.reuseport).map_err(failed)?;
    if address.ip().is_multicast() {
        // Several programs may be members.
        sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true).map_err(failed)?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        // Without CAP_NET_ADMIN, up to net.core.rmem_max.
        let forced = sockopt::set_socket_recv_buffer_size_force(&socket, bytes);
        forced.or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, bytes)).map_err(failed)?;
        let got = sockopt::socket_recv_buffer_size(&socket).map_err(failed)?;
        if got < 2 * bytes {
            let max = "raise net.core.rmem_max, or grant CAP_NET_ADMIN";
            tracing::warn!("{address}: a buffer of {} bytes, not {bytes}: {max}", got / 2);
        }
    }
    bind(&socket, &address).map_err(failed)?;
    let socket = UdpSocket::from(socket);
    join(&socket, address).map_err(|error| Failure::Input(format!("{address}: {error}")))?;
    socket.set_read_timeout(Some(WAIT)).map_err(|error| Failure::Run(error.to_string()))?;
    Ok(socket)
}

fn join(socket: &UdpSocket, address: SocketAddr) -> std::io::Result<()> {
    match address {
        SocketAddr::V4(group) if group.ip().is_multicast() => {
            socket.join_multicast_v4(group.ip(), &std::net::Ipv4Addr::UNSPECIFIED)
        }
        SocketAddr::V6(group) if group.ip().is_multicast() => {
            socket.join_multicast_v6(group.ip(), group.scope_id())
        }
        _ => Ok(()),
    }
}

/// The problem and its remedy.
fn reason(error: Errno, address: SocketAddr) -> String {
    let port = address.port();
    match error {
        Errno::ADDRINUSE => format!(
            "another program listens there: stop it, choose another port, or start both with --reuseport ({error})"
        ),
        Errno::ADDRNOTAVAIL => {
            format!("no interface has this address: `ip address` lists those there are ({error})")
        }
        Errno::ACCESS if port < 1024 => {
            format!("ports below 1024 need CAP_NET_BIND_SERVICE, or root ({error})")
        }
        Errno::AFNOSUPPORT => format!("this kernel has no IPv6 ({error})"),
        error => error.to_string(),
    }
}
