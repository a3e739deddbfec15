//! One probe of one backend, over the kernel's sockets: it blocks, and ends by its timeout.

use super::deadline::{Deadline, Timed};
use super::tls::{self, Clients};
use super::{Probed, echo, http};
use crate::config::{HttpProbe, Probe, Trust};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// Probes a backend, and says how long that took.
///
/// A TCP, HTTP or HTTPS probe ends as soon as it knows: with the connection, with the answer's status
/// line. A UDP probe that nobody answers passes at the end of its timeout.
///
/// # Errors
/// Why the probe failed, in the words of an operator: `connection refused`.
pub fn run(probed: &Probed, clients: &Clients) -> Result<Duration, String> {
    let Probed { address, health } = probed;
    let deadline = Deadline::start(health.timeout_ms);
    let server = SocketAddr::new(*address, health.port);
    match &health.probe {
        Probe::Tcp => connect(server, deadline).map(drop),
        Probe::Http(probe) => http(server, deadline, probe),
        Probe::Https(probe, trust) => https(server, deadline, probe, trust, clients),
        Probe::Icmp => echo::ask(*address, &deadline),
        Probe::Udp => udp(server, deadline),
    }?;
    Ok(deadline.elapsed())
}

fn connect(server: SocketAddr, deadline: Deadline) -> Result<Timed, String> {
    let stream = deadline.left().and_then(|left| TcpStream::connect_timeout(&server, left));
    match stream {
        Ok(stream) => Ok(Timed { stream, deadline }),
        Err(error) => Err(deadline.why(&error, "while connecting")),
    }
}

/// What an answer that isn't the expected one says, or how it stayed out.
fn why_answer(error: &io::Error, deadline: Deadline) -> String {
    match error.kind() {
        ErrorKind::Other => error.to_string(),
        _ => {
            tls::why_io(error).unwrap_or_else(|| deadline.why(error, "while waiting for an answer"))
        }
    }
}

fn http(server: SocketAddr, deadline: Deadline, probe: &HttpProbe) -> Result<(), String> {
    let mut stream = connect(server, deadline)?;
    let request = http::request(&probe.path, server.ip(), server.port(), 80);
    http::ask(&mut stream, &request, probe).map_err(|error| why_answer(&error, deadline))
}

fn https(
    server: SocketAddr,
    deadline: Deadline,
    probe: &HttpProbe,
    trust: &Trust,
    clients: &Clients,
) -> Result<(), String> {
    let client = clients.client(trust)?;
    let mut stream = connect(server, deadline)?;
    let mut connection = ClientConnection::new(client, ServerName::from(server.ip()))
        .map_err(|error| format!("TLS: {error}"))?;
    connection.complete_io(&mut stream).map_err(|error| {
        tls::why_io(&error).unwrap_or_else(|| deadline.why(&error, "in the TLS handshake"))
    })?;
    let request = http::request(&probe.path, server.ip(), server.port(), 443);
    let mut tls_stream = rustls::Stream::new(&mut connection, &mut stream);
    let asked = http::ask(&mut tls_stream, &request, probe);
    connection.send_close_notify();
    // The answer is known: a server that is gone already needs no farewell.
    let _ = connection.write_tls(&mut stream);
    asked.map_err(|error| why_answer(&error, deadline))
}

/// Sends one byte, since an empty datagram reads like the end of a stream. A connected socket hears of
/// ICMP's port unreachable.
fn udp(server: SocketAddr, deadline: Deadline) -> Result<(), String> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let exchange = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(server)?;
        socket.send(&[0])?;
        deadline.receive(&socket, &mut [0; 1])
    };
    match exchange() {
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            ErrorKind::TimedOut => Ok(()),
            ErrorKind::ConnectionRefused => Err("ICMP port unreachable".into()),
            _ => Err(deadline.why(&error, "while sending a datagram")),
        },
    }
}
