//! One probe of one backend, over the kernel's sockets: it never blocks, and ends within its
//! timeout.

use crate::conversation::Conversation;
use crate::deadline::Deadline;
use crate::echo::Echo;
use crate::settings::Probe;
use crate::tls::{self, Clients};
use crate::{Outcome, Probed};
use mio::event::Source;
use mio::net::UdpSocket;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

/// A probe under way.
///
/// A TCP, HTTP or HTTPS probe ends as soon as its result is known: with the connection, or with the
/// answer's status line. A UDP probe without an answer passes at the end of its timeout.
#[derive(Debug)]
pub struct RunningProbe {
    deadline: Deadline,
    talk: Talk,
}

#[derive(Debug)]
enum Talk {
    Conversation(Conversation),
    Echo(Echo),
    Datagram(UdpSocket),
}

/// The progress of a probe.
#[derive(Debug)]
pub enum Progress {
    /// The probe waits for its socket.
    Waits,
    /// The probe paused for the other probes.
    HasMore,
    /// The probe is over: its duration, or the reason that it failed, in an operator's words.
    Over(Outcome),
}

impl RunningProbe {
    /// Begins a probe.
    ///
    /// # Errors
    /// The reason, if it failed at once: `network unreachable`.
    pub fn start(probed: &Probed, clients: &mut Clients) -> Result<Self, String> {
        let Probed { address, health } = probed;
        let deadline = Deadline::start(health.timeout_ms);
        let server = SocketAddr::new(*address, health.port);
        let (talk, doing) = match &health.probe {
            Probe::Icmp => (Echo::start(*address).map(Talk::Echo), ECHOING),
            Probe::Udp => (datagram(server).map(Talk::Datagram), SENDING),
            probe => {
                let client = match probe {
                    Probe::Https(_, trust) => Some(clients.client(trust)?),
                    _ => None,
                };
                let started = Conversation::start(server, probe, client);
                (started.map(Talk::Conversation), "while connecting")
            }
        };
        let talk = talk.map_err(|error| why(&error, deadline, doing))?;
        Ok(Self { deadline, talk })
    }

    /// Continues as far as the socket allows, within one turn.
    pub fn advance(&mut self) -> Progress {
        let (advanced, has_more) = match &mut self.talk {
            Talk::Conversation(talk) => (talk.advance(), talk.has_more()),
            Talk::Echo(echo) => (echo.advance(), echo.has_more()),
            Talk::Datagram(socket) => (socket.recv(&mut [0; 1]).map(drop), false),
        };
        match advanced {
            Ok(()) => Progress::Over(Ok(self.deadline.elapsed())),
            Err(error) if error.kind() == ErrorKind::WouldBlock && has_more => Progress::HasMore,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Progress::Waits,
            Err(error) => Progress::Over(Err(self.why(&error))),
        }
    }

    /// The probe's deadline.
    pub fn end(&self) -> Instant {
        self.deadline.end()
    }

    /// The result of the probe at its deadline.
    pub fn expire(&self) -> Outcome {
        match &self.talk {
            Talk::Datagram(_) => Ok(self.deadline.elapsed()),
            _ => Err(self.why(&ErrorKind::TimedOut.into())),
        }
    }

    fn why(&self, error: &io::Error) -> String {
        let doing = match (&self.talk, error.kind()) {
            (Talk::Echo(_), ErrorKind::ConnectionRefused) => {
                return "ICMP destination unreachable".into();
            }
            (Talk::Datagram(_), ErrorKind::ConnectionRefused) => {
                return "ICMP port unreachable".into();
            }
            (Talk::Conversation(talk), _) => talk.doing(),
            (Talk::Echo(_), _) => ECHOING,
            (Talk::Datagram(_), _) => SENDING,
        };
        why(error, self.deadline, doing)
    }

    /// The event source to wait for.
    pub const fn source(&mut self) -> &mut dyn Source {
        match &mut self.talk {
            Talk::Conversation(talk) => talk.socket(),
            Talk::Echo(echo) => echo.socket(),
            Talk::Datagram(socket) => socket,
        }
    }
}

const ECHOING: &str = "while waiting for an echo reply";
const SENDING: &str = "while sending a datagram";

/// The text for `error`, or for a missing answer.
fn why(error: &io::Error, deadline: Deadline, doing: &str) -> String {
    tls::why_io(error).unwrap_or_else(|| match error.kind() {
        ErrorKind::Other => error.to_string(),
        _ => deadline.why(error, doing),
    })
}

/// Sends one byte, since an empty datagram reads like the end of a stream. A connected socket gets
/// ICMP's port unreachable as an error.
fn datagram(server: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0).into())?;
    socket.connect(server)?;
    socket.send(&[0])?;
    Ok(socket)
}
