//! The kernel's sockets, as a device that the engine sends to.

use crate::interfaces::{self, Local, and_sockets};
use crate::source::flows::Flows;
use crate::source::make::Payload;
use crate::stamp;
use hotloop::prelude::*;
use hotloop::stage::{Counter, Device, DeviceCounters};
use hotloop_ops::Failure;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, sendmmsg};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The sockets of all flows: each is bound to the flow's source, and connected to its destination.
#[derive(Debug)]
pub struct Sockets {
    /// By core, and by the flow's index among those of the core.
    cores: Vec<(Vec<UdpSocket>, Sent)>,
    /// The interfaces with their addresses.
    interfaces: Vec<Arc<Local>>,
}

/// One core's counter, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Sent(Counter);

impl Sockets {
    /// Opens a socket for each flow.
    ///
    /// # Errors
    /// [`Failure::Input`] with the reason why a socket can't be opened, and the remedy.
    pub fn open(flows: &Flows, core_count: usize) -> Result<Self, Failure> {
        let of_core = |core_index| {
            let own = flows.share(core_index, core_count);
            let sockets = own.map(|flow| open(flows.source(flow), flows.destination(flow)));
            Ok::<_, Failure>((sockets.collect::<Result<_, _>>()?, Sent::default()))
        };
        let cores: Vec<(Vec<UdpSocket>, Sent)> =
            (0..core_count).map(of_core).collect::<Result<_, _>>()?;
        let sockets = cores.iter().flat_map(|(sockets, _)| sockets);
        let interfaces = interfaces::of(sockets.filter_map(|socket| socket.local_addr().ok()));
        Ok(Self { cores, interfaces })
    }

    /// The sink for payloads of `payload_bytes` on this core.
    ///
    /// # Panics
    /// If there are fewer cores.
    #[must_use]
    pub fn sender(self: &Arc<Self>, core: &Core, payload_bytes: u16) -> Sender {
        assert!(core.index() < self.cores.len(), "no sockets for core {}", core.index());
        let payload: Box<[u8]> = (0..payload_bytes).map(|index| index as u8).collect();
        Sender {
            sockets: Arc::clone(self),
            core_index: core.index(),
            headers: MultiHeaders::preallocate(BURST_CAPACITY, None),
            payloads: vec![payload; BURST_CAPACITY],
            last_error: None,
        }
    }
}

fn open(from: SocketAddr, to: SocketAddr) -> Result<UdpSocket, Failure> {
    let failed =
        |address: SocketAddr| move |error| Failure::Input(format!("{address}: {}", reason(&error)));
    let socket = UdpSocket::bind(from).map_err(failed(from))?;
    socket.set_broadcast(true).map_err(failed(to))?;
    socket.connect(to).map_err(failed(to))?;
    Ok(socket)
}

/// The problem and its remedy.
fn reason(error: &io::Error) -> String {
    let advice = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EADDRINUSE) => "another program has this port: choose others by --source-port",
        Some(Errno::EADDRNOTAVAIL) => {
            "no interface has this address: `ip address` lists those there are"
        }
        Some(Errno::EMFILE) => "each flow takes a file: raise `ulimit -n`, or send fewer --flows",
        Some(Errno::ENETUNREACH) => "no route: `ip route` lists those there are",
        Some(Errno::EACCES) => "source ports below 1024 need CAP_NET_BIND_SERVICE, or root",
        _ => return error.to_string(),
    };
    format!("{advice} ({error})")
}

impl Device for Sockets {
    fn name(&self) -> String {
        "sockets".to_owned()
    }

    fn counters(&self) -> DeviceCounters {
        let sent = self.cores.iter().map(|(_, Sent(count))| count.count()).sum();
        DeviceCounters { sent, ..DeviceCounters::default() }
    }
}

/// Sends through the sockets of one core.
///
/// A sink that makes system calls, and sleeps while a socket's buffer is full.
#[derive(Debug)]
pub struct Sender {
    sockets: Arc<Sockets>,
    core_index: usize,
    headers: MultiHeaders<()>,
    payloads: Vec<Box<[u8]>>,
    /// The latest call's error, if it sent nothing.
    last_error: Option<Errno>,
}

impl Sender {
    /// Sends the payloads at the front that belong to one flow. Returns the number sent.
    fn send_front(&mut self, payloads: &[Payload]) -> Result<usize, Errno> {
        let Some(place) = payloads.first().map(|first| first.place) else { return Ok(0) };
        let same = payloads.iter().take_while(|payload| payload.place == place);
        let mut count = 0;
        for (bytes, payload) in self.payloads.iter_mut().zip(same) {
            if let Some(beginning) = bytes.first_chunk_mut::<{ stamp::BYTES }>() {
                *beginning = payload.stamp;
            }
            count += 1;
        }
        let slices: Vec<_> =
            self.payloads[..count].iter().map(|bytes| [IoSlice::new(bytes)]).collect();
        let (sockets, Sent(sent)) = &self.sockets.cores[self.core_index];
        let (file, addresses) = (sockets[place].as_raw_fd(), [None; BURST_CAPACITY]);
        let messages =
            sendmmsg(file, &mut self.headers, &slices, &addresses[..count], [], MsgFlags::empty())?;
        let count = messages.count();
        sent.add(count as u64);
        Ok(count)
    }

    /// Logs why nothing is sent, once for each run of the same error.
    fn failed(&mut self, error: Errno) {
        // A receiver that is gone is reported for the previous datagram: the next is sent all the
        // same.
        let is_passing = matches!(error, Errno::ECONNREFUSED | Errno::EINTR | Errno::ENOBUFS);
        if !is_passing && self.last_error != Some(error) {
            tracing::warn!("thread {} sends nothing: {error}; it goes on trying", self.core_index);
            self.last_error = Some(error);
        }
    }
}

impl Sink for Sender {
    type Item = Payload;

    fn send(&mut self, burst: &mut Burst<Payload>) -> usize {
        let mut sent = 0;
        while !burst.is_empty() {
            match self.send_front(burst.as_slice()) {
                Ok(count) => {
                    burst.forget_front(count);
                    sent += count;
                    self.last_error = None;
                }
                Err(error) => {
                    self.failed(error);
                    break;
                }
            }
        }
        sent
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        and_sockets(&self.sockets.interfaces, Arc::clone(&self.sockets) as Arc<dyn Device>)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::graph::{Steering, graph};
    use crate::source::make::Payloads;
    use crate::verify::{Verified, Verifier};
    use std::convert::Infallible;
    use std::time::Duration;

    fn flows(to: SocketAddr, first_port: u16, count: u32) -> Flows {
        Flows { from: "127.0.0.1".parse().unwrap(), first_port, to: vec![to], count }
    }

    #[test]
    fn what_is_sent_arrives_with_its_numbers() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let flows = flows(receiver.local_addr().unwrap(), 40_000, 3);
        let sockets = Arc::new(Sockets::open(&flows, 1).unwrap());
        let steering = Steering::default();
        let nf = graph(
            |core| Payloads::new(&flows, core.index(), core.count()),
            Some(2_000),
            &steering,
            |core| Ok::<_, Infallible>(sockets.sender(core, 100)),
        );
        let plan = Engine::plan(nf, Deployment::run_to_completion(1)).unwrap();
        let mut verifier = Verifier::new(3);
        let report = plan
            .run(|control| {
                steering.open();
                let mut bytes = [0; 200];
                for _ in 0..300 {
                    assert_eq!(receiver.recv(&mut bytes).unwrap(), 100);
                    assert!(verifier.see(&bytes[..100]).is_some());
                    assert_eq!(bytes[99], 99);
                }
                steering.end();
                control.wait_for(Duration::from_millis(10));
            })
            .unwrap();
        let expected = Verified { received: 300, ..Verified::default() };
        assert_eq!(Verifier::sum([&verifier]), expected);
        assert!(report.sent >= 300 && report.sent == report.created, "{report}");
        assert_eq!(report.devices.sent, Some(report.sent));
    }

    #[test]
    fn a_port_in_use_is_named_with_what_to_do() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let holder = UdpSocket::bind(taken).unwrap();
        let error = Sockets::open(&flows(taken, taken.port(), 1), 1).unwrap_err().to_string();
        assert!(error.contains(&taken.to_string()) && error.contains("--source-port"), "{error}");
        drop(holder);
        let elsewhere = Flows { from: "192.0.2.1".parse().unwrap(), ..flows(taken, 40_000, 1) };
        let error = Sockets::open(&elsewhere, 1).unwrap_err().to_string();
        assert!(error.contains("ip address"), "{error}");
    }
}
