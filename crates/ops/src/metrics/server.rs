//! The thread that serves metrics: a few connections, none of which it waits for.

use super::client::{Client, Phase};
use super::family::{Format, Scrape};
use super::http;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

/// How many clients are served at a time. Where there are as many, a new one takes the place of the
/// one that has not finished its request, or not taken its answer, for longest.
pub const CLIENT_COUNT_MAX: usize = 8;

/// How long the thread rests where the system accepts no connection: too many files are open.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Wakes the thread.
#[derive(Clone, Debug)]
pub struct Wake(Arc<OwnedFd>);

impl Wake {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)))
    }

    pub fn wake(&self) {
        // It fails where the count is full: then the thread will wake anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

/// What the thread has.
#[derive(Debug)]
pub struct Server {
    pub listener: TcpListener,
    pub wake: Wake,
    /// Where it asks the control thread for metrics.
    pub asks: Sender<()>,
    /// Where they come. The other end goes when nobody is to be served any more.
    pub scrapes: Receiver<Arc<Scrape>>,
    pub clients: Vec<Client>,
    pub is_asked: bool,
}

impl Server {
    /// The thread's life.
    pub fn serve(mut self) {
        while self.turn().is_ok() {}
    }

    /// Waits until there is something to do, and does it. An error is the end.
    fn turn(&mut self) -> Result<(), TryRecvError> {
        self.wait();
        self.wake.clear();
        match self.scrapes.try_recv() {
            Ok(scrape) => self.hand_out(&scrape),
            Err(TryRecvError::Empty) => {}
            Err(end) => return Err(end),
        }
        let now = Instant::now();
        self.accept(now);
        self.clients.retain_mut(|client| client.go_on().is_ok() && now < client.end);
        self.ask();
        Ok(())
    }

    fn wait(&mut self) {
        let first = self.clients.iter().map(|client| client.end).min();
        let left = first.map(|end| end.saturating_duration_since(Instant::now()));
        // A millisecond more, so that the end has come when the thread wakes.
        let left = left.map(|left| left + Duration::from_millis(1));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut waited = vec![
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(&*self.wake.0, PollFlags::IN),
        ];
        waited.extend(self.clients.iter().map(|it| PollFd::new(it.stream(), it.events())));
        if poll(&mut waited, left.as_ref()).is_err() {
            return; // interrupted: everything is looked at, and nothing waits
        }
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let is_gone: Vec<_> = waited[2..].iter().map(|fd| fd.revents().intersects(gone)).collect();
        let mut is_gone = is_gone.into_iter();
        self.clients.retain(|_| is_gone.next() == Some(false));
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..CLIENT_COUNT_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if let Ok(client) = Client::new(stream, now)
                        && self.has_room()
                    {
                        self.clients.push(client);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Another client went away before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => return std::thread::sleep(ACCEPT_REST),
            }
        }
    }

    /// Makes room for a client. Those that wait for the program are left alone: the wait is short.
    fn has_room(&mut self) -> bool {
        if self.clients.len() < CLIENT_COUNT_MAX {
            return true;
        }
        // The first are the oldest.
        let reads = |client: &Client| matches!(client.phase, Phase::Reading(_));
        let sends = |client: &Client| matches!(client.phase, Phase::Sending(..));
        let position = self.clients.iter().position(reads);
        let Some(position) = position.or_else(|| self.clients.iter().position(sends)) else {
            return false;
        };
        self.clients.remove(position);
        true
    }

    /// Asks for metrics, where clients wait for some.
    fn ask(&mut self) {
        if self.is_asked {
            return;
        }
        for client in &mut self.clients {
            if let Phase::Waiting(format) = client.phase {
                client.phase = Phase::Asked(format);
                self.is_asked = true;
            }
        }
        if self.is_asked {
            // Where the program ends, the end of `scrapes` says so.
            let _ = self.asks.send(());
        }
    }

    /// Gives metrics to those that they were asked for.
    fn hand_out(&mut self, scrape: &Arc<Scrape>) {
        self.is_asked = false;
        let mut answers: [(Format, Option<Arc<[u8]>>); 2] =
            [(Format::Text, None), (Format::OpenMetrics, None)];
        for client in &mut self.clients {
            let Phase::Asked(wanted) = client.phase else { continue };
            for (format, answer) in answers.iter_mut().filter(|(format, _)| *format == wanted) {
                let answer = answer
                    .get_or_insert_with(|| http::found(*format, &scrape.written(*format)).into());
                client.phase = Phase::Sending(Arc::clone(answer), 0);
            }
        }
    }
}
