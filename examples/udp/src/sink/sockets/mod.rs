//! The kernel's sockets, as a device that the engine receives from.

mod loss;
mod open;
mod receive;

use crate::interfaces::{self, Local};
use hotloop::prelude::*;
use hotloop::stage::{Counter, Device, DeviceCounters};
use hotloop_ops::Failure;
pub use loss::KernelLoss;
pub use open::SocketOptions;
pub use receive::{Receiver, Taken};
use rustix::fs::fstat;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

/// The sockets of all threads, open until this is dropped.
#[derive(Debug)]
pub struct Sockets {
    /// The sockets of each thread.
    threads: Vec<Thread>,
    inodes: Vec<u64>,
    /// The interfaces with their addresses.
    interfaces: Vec<Arc<Local>>,
    /// The kernel's losses when the sockets were opened.
    before: KernelLoss,
}

#[derive(Debug)]
struct Thread {
    sockets: Vec<Arc<UdpSocket>>,
    counts: ThreadCounts,
}

/// One thread's counters, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct ThreadCounts {
    /// Datagrams passed on.
    received: Counter,
    /// Datagrams that were taken from a socket, but not passed on before the thread ended.
    left: Counter,
}

impl Sockets {
    /// Opens sockets at these addresses, for `thread_count` threads. With
    /// [`SocketOptions::reuseport`] each thread has one for each address. Otherwise there is one
    /// for each address, and threads and sockets are assigned to each other in turn.
    ///
    /// # Errors
    /// [`Failure::Input`] with the reason why a socket can't be opened, and the remedy.
    pub fn open(
        addresses: &[SocketAddr],
        thread_count: usize,
        options: &SocketOptions,
    ) -> Result<Self, Failure> {
        let open_all = || {
            let sockets = addresses.iter().map(|address| open::open(*address, options));
            sockets.map(|socket| socket.map(Arc::new)).collect::<Result<Vec<_>, _>>()
        };
        let by_thread: Vec<Vec<_>> = if options.reuseport {
            (0..thread_count).map(|_| open_all()).collect::<Result<_, _>>()?
        } else {
            share(&open_all()?, thread_count)
        };
        let all = by_thread.iter().flatten();
        let mut inodes = all
            .map(|socket| fstat(socket).map(|stat| stat.st_ino))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Failure::Run(error.to_string()))?;
        inodes.sort_unstable();
        inodes.dedup();
        let threads = by_thread
            .into_iter()
            .map(|sockets| Thread { sockets, counts: ThreadCounts::default() });
        let before = KernelLoss::read(&inodes).unwrap_or_default();
        let interfaces = interfaces::of(addresses.iter().copied());
        Ok(Self { threads: threads.collect(), inodes, interfaces, before })
    }

    /// The source for this core's thread. `waits` is whether it sleeps while there are no
    /// datagrams.
    ///
    /// # Panics
    /// If there are fewer threads.
    #[must_use]
    pub fn receiver(self: &Arc<Self>, core: &Core, waits: bool) -> Receiver {
        Receiver::new(Arc::clone(self), core.index(), waits)
    }

    /// The kernel's losses since the sockets were opened; `None` if the kernel does not report
    /// them.
    #[must_use]
    pub fn lost(&self) -> Option<KernelLoss> {
        KernelLoss::read(&self.inodes).ok().map(|now| now.since(self.before))
    }

    fn count(&self, which: impl Fn(&ThreadCounts) -> &Counter) -> u64 {
        self.threads.iter().map(|thread| which(&thread.counts).count()).sum()
    }
}

/// Assigns threads and sockets in turn: several sockets for a thread, or several threads for a
/// socket.
fn share<T: Clone>(sockets: &[T], thread_count: usize) -> Vec<Vec<T>> {
    let of_thread = |thread: usize| {
        let own: Vec<_> = sockets.iter().skip(thread).step_by(thread_count).cloned().collect();
        if own.is_empty() { vec![sockets[thread % sockets.len()].clone()] } else { own }
    };
    (0..thread_count).map(of_thread).collect()
}

impl Device for Sockets {
    fn name(&self) -> String {
        "sockets".to_owned()
    }

    fn counters(&self) -> DeviceCounters {
        let left = self.count(|counts| &counts.left);
        DeviceCounters {
            received: self.count(|counts| &counts.received),
            imissed: self.lost().map(|lost| lost.socket_drops + left),
            ..DeviceCounters::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::Findings;
    use crate::sink::delivery::{Counts as Delivered, Delivery};
    use hotloop::engine::Control;
    use std::convert::Infallible;
    use std::time::Duration;

    fn open(count: usize, options: &SocketOptions) -> (Arc<Sockets>, Vec<SocketAddr>) {
        let any: Vec<SocketAddr> = vec!["127.0.0.1:0".parse().unwrap(); count];
        let sockets = Sockets::open(&any, 1, options).unwrap();
        let addresses =
            sockets.threads[0].sockets.iter().map(|socket| socket.local_addr().unwrap());
        let addresses = addresses.collect();
        (Arc::new(sockets), addresses)
    }

    /// Receives until `control` returns. Returns the report.
    fn receive(sockets: &Arc<Sockets>, waits: bool, control: impl FnOnce(&Control<'_>)) -> Report {
        let (counts, findings) = (Arc::new(Delivered::new(1)), Arc::new(Findings::default()));
        let nf = source(|core| Ok::<_, Infallible>(sockets.receiver(core, waits)))
            .sink(|core| Ok::<_, Infallible>(Delivery::<Taken>::new(core, &counts, &findings)));
        let plan = Engine::plan(nf, Deployment::run_to_completion(1)).unwrap();
        plan.run(control).unwrap()
    }

    fn wait_for(control: &Control<'_>, received: u64) {
        while control.snapshot().received < received {
            control.wait_for(Duration::from_millis(1));
        }
    }

    #[test]
    fn all_that_is_sent_to_several_sockets_is_received() {
        for (socket_count, waits) in [(1, true), (3, true), (1, false), (3, false)] {
            let (sockets, addresses) = open(socket_count, &SocketOptions::default());
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            let report = receive(&sockets, waits, |control| {
                // Few enough for a socket's buffer.
                for index in 0..90 {
                    sender.send_to(&[7; 100], addresses[index % socket_count]).unwrap();
                }
                wait_for(control, 90);
            });
            assert_eq!((report.received, report.sent), (90, 90));
            assert_eq!((report.devices.received, sockets.counters().imissed), (Some(90), Some(0)));
        }
    }

    #[test]
    fn what_a_socket_has_no_room_for_is_counted() {
        let small = SocketOptions { receive_buffer_bytes: Some(4_096), ..SocketOptions::default() };
        let (sockets, addresses) = open(1, &small);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        (0..1_000).for_each(|_| assert_eq!(sender.send_to(&[7; 100], addresses[0]).unwrap(), 100));
        let lost = sockets.lost().unwrap().socket_drops;
        assert!((1..1_000).contains(&lost), "{lost}");
        let report = receive(&sockets, true, |control| wait_for(control, 1_000 - lost));
        assert_eq!((report.received, sockets.counters().imissed), (1_000 - lost, Some(lost)));
    }

    #[test]
    fn sockets_share_an_address_where_they_may() {
        let options = SocketOptions { reuseport: true, ..SocketOptions::default() };
        let (first, addresses) = open(1, &options);
        let second = Sockets::open(&addresses, 2, &options).unwrap();
        assert_eq!((first.inodes.len(), second.inodes.len()), (1, 2));
        let error = Sockets::open(&addresses, 1, &SocketOptions::default()).unwrap_err();
        assert!(error.to_string().contains("--reuseport"), "{error}");
    }

    #[test]
    fn threads_and_sockets_are_assigned_in_turn() {
        assert_eq!(share(&['a', 'b', 'c'], 2), [vec!['a', 'c'], vec!['b']]);
        assert_eq!(share(&['a', 'b'], 3), [vec!['a'], vec!['b'], vec!['a']]);
    }
}
