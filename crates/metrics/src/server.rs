//! The thread that serves metrics: a few connections, without waiting for any of them.
//!
//! Clients are served in the order in which they come. If all places are taken, the next client
//! waits for the first free one, and all others wait to be accepted. A client loses its place if it
//! takes longer than [`GRACE`](crate::client::GRACE) for its part, and at once if its address has
//! more places than another. So neither clients that reconnect constantly, nor those that never
//! read, keep out one that scrapes once in a while.

use crate::client::{Client, GRACE, Phase};
use crate::family::{Format, Scrape};
use crate::http;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

/// The most clients served at a time. More wait to be accepted.
pub const CLIENT_COUNT_MAX: usize = 32;

/// Number of connections that may wait to be accepted, unless `net.core.somaxconn` is lower.
pub const BACKLOG: i32 = 1024;

/// How long the thread rests if the system accepts no connection because too many files are open.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Wakes the thread.
#[derive(Clone, Debug)]
pub struct Wake(Arc<OwnedFd>);

impl Wake {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)))
    }

    pub fn wake(&self) {
        // It fails if the count is full: then the thread will wake anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

/// State of the thread.
#[derive(Debug)]
pub struct Server {
    pub listener: TcpListener,
    pub wake: Wake,
    /// Requests to the control thread for metrics.
    pub asks: Sender<()>,
    /// The metrics requested. The other end is dropped when the server ends.
    pub scrapes: Receiver<Arc<Scrape>>,
    pub clients: Vec<Client>,
    /// The next client, while there is no place for it.
    pub next: Option<Client>,
    pub is_asked: bool,
}

impl Server {
    /// The loop of the thread.
    pub fn serve(mut self) {
        while self.turn().is_ok() {}
    }

    /// Waits until there is something to do, and does it. An error is the end.
    fn turn(&mut self) -> Result<(), TryRecvError> {
        self.wait();
        self.wake.clear();
        match self.scrapes.try_recv() {
            Ok(scrape) => self.hand_out(&scrape, Instant::now()),
            Err(TryRecvError::Empty) => {}
            Err(end) => return Err(end),
        }
        let now = Instant::now();
        self.clients.retain_mut(|client| client.go_on(now).is_ok() && now < client.end);
        // Last: if the next one finds no place, there are others that wake this thread when they
        // end.
        self.accept(now);
        self.ask();
        Ok(())
    }

    fn wait(&mut self) {
        // When a client is late, the next may get its place.
        let (now, has_next) = (Instant::now(), self.next.is_some());
        let late =
            |client: &Client| Some(client.since + GRACE).filter(|late| has_next && *late > now);
        let due = |client: &Client| late(client).map_or(client.end, |late| late.min(client.end));
        let first = self.clients.iter().map(due).min();
        let left = first.map(|end| end.saturating_duration_since(now));
        // A millisecond more, so that the end has come when the thread wakes.
        let left = left.map(|left| left + Duration::from_millis(1));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let accepts = if self.next.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut waited =
            vec![PollFd::new(&self.listener, accepts), PollFd::new(&*self.wake.0, PollFlags::IN)];
        waited.extend(
            self.clients.iter().map(|client| PollFd::new(client.stream(), client.events())),
        );
        if poll(&mut waited, left.as_ref()).is_err() {
            return; // interrupted: check everything, wait for nothing
        }
        let events: Vec<_> = waited[2..].iter().map(PollFd::revents).collect();
        let mut events = events.into_iter();
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        self.clients.retain_mut(|client| {
            let events = events.next().unwrap_or(gone);
            client.has_closed |= events.contains(PollFlags::RDHUP);
            !events.intersects(gone)
        });
    }

    /// Gives free places to new clients.
    fn accept(&mut self, now: Instant) {
        for _ in 0..CLIENT_COUNT_MAX {
            if self.next.is_none() {
                self.next = self.accept_one(now);
            }
            let Some(next) = &self.next else { return };
            if !self.has_room(next.address, now) {
                return;
            }
            if let Some(mut client) = self.next.take() {
                client.since = now;
                self.clients.push(client);
            }
        }
    }

    /// The first client that waits to be accepted.
    fn accept_one(&self, now: Instant) -> Option<Client> {
        loop {
            match self.listener.accept() {
                Ok((stream, address)) => {
                    if let Ok(client) = Client::new(stream, address.ip(), now) {
                        return Some(client);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // Another client went away before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    std::thread::sleep(ACCEPT_REST);
                    return None;
                }
            }
        }
    }

    /// Makes room for a client of this address. Clients that wait for the program keep their
    /// places: that wait is short.
    fn has_room(&mut self, address: IpAddr, now: Instant) -> bool {
        if self.clients.len() < CLIENT_COUNT_MAX {
            return true;
        }
        let count_of =
            |address| self.clients.iter().filter(|client| client.address == address).count();
        let own_count = count_of(address);
        let rank = |client: &Client| {
            let count = count_of(client.address);
            let is_late = count >= own_count && client.is_late(now);
            let has_more = count > own_count + 1 && client.is_awaited();
            (is_late || has_more).then_some((count, Reverse(client.since)))
        };
        let ranked = self.clients.iter().enumerate();
        let first = ranked.filter_map(|(index, connection)| Some((rank(connection)?, index))).max();
        first.map(|(_, index)| self.clients.remove(index)).is_some()
    }

    /// Asks for metrics, if clients wait for them.
    fn ask(&mut self) {
        if self.is_asked {
            return;
        }
        for client in &mut self.clients {
            if let Phase::Waiting(format) = client.phase {
                // It is the same wait.
                client.phase = Phase::Asked(format);
                self.is_asked = true;
            }
        }
        if self.is_asked {
            // If the program ends, `scrapes` is closed.
            let _ = self.asks.send(());
        }
    }

    /// Gives the metrics to the clients that requested them.
    fn hand_out(&mut self, scrape: &Arc<Scrape>, now: Instant) {
        self.is_asked = false;
        let mut answers: [(Format, Option<Arc<[u8]>>); 2] =
            [(Format::Text, None), (Format::OpenMetrics, None)];
        for client in &mut self.clients {
            let Phase::Asked(wanted) = client.phase else { continue };
            for (format, answer) in answers.iter_mut().filter(|(format, _)| *format == wanted) {
                let answer = answer
                    .get_or_insert_with(|| http::found(*format, &scrape.written(*format)).into());
                client.enter(Phase::Sending(Arc::clone(answer), 0), now);
            }
        }
    }
}
