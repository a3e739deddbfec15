//! The thread that talks to all peers: it waits for all sockets at once and never for a single one.

use super::PeerId;
use super::connection::{Connection, Over};
use super::peers::Peers;
use super::tls::Tls;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of connections that have not identified themselves. One more ends the oldest.
pub const UNKNOWN_MAX: usize = 32;

/// Maximum number of connections accepted in a turn.
const ACCEPTED_PER_TURN: usize = 16;

/// The time from a failed connection to the next attempt, in milliseconds: at first, and at most.
const BACKOFF_MS: u64 = 100;
const BACKOFF_MS_MAX: u64 = 5_000;

/// The longest wait of the thread: scheduled work is at most this late.
const WAIT: Duration = Duration::from_millis(100);

const EVENTS_MAX: usize = 128;
const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const CONNECTIONS: usize = 2;

/// Locks the state of both threads. Neither keeps the lock for longer than a few frames take.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state that the two threads share.
#[derive(Debug)]
pub struct Shared {
    pub peers: Mutex<Peers>,
    /// New settings for securing connections, if there are any.
    pub renewed: Mutex<Option<Tls>>,
    /// Whether to end all connections, for new snapshots of all peers.
    pub rejoins: AtomicBool,
    pub is_over: AtomicBool,
    pub started: Instant,
}

impl Shared {
    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A peer that this node connects to.
#[derive(Debug)]
struct Dialed {
    name: String,
    address: SocketAddr,
    is_under_way: bool,
    next_ms: u64,
    backoff_ms: u64,
}

/// All connections.
#[derive(Debug)]
pub struct Transport {
    poll: Poll,
    listener: TcpListener,
    tls: Option<Tls>,
    /// The connections, by age.
    connections: BTreeMap<usize, Connection>,
    number: usize,
    dialed: BTreeMap<usize, Dialed>,
    addresses: Vec<IpAddr>,
}

impl Transport {
    /// Listens, for peers at these addresses, by number; connects to the peers selected by
    /// `connects_to`.
    ///
    /// # Errors
    /// If the node can't listen at the address, or the kernel allows no more files.
    pub fn new(
        listen: SocketAddr,
        tls: Option<Tls>,
        peers: &[(String, SocketAddr)],
        connects_to: impl Fn(PeerId) -> bool,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(listen)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let dialed = |(number, (name, address)): (usize, &(String, SocketAddr))| {
            let (name, address) = (name.clone(), *address);
            let dialed =
                Dialed { name, address, is_under_way: false, next_ms: 0, backoff_ms: BACKOFF_MS };
            connects_to(PeerId(number)).then_some((number, dialed))
        };
        Ok(Self {
            poll,
            listener,
            tls,
            connections: BTreeMap::new(),
            number: CONNECTIONS,
            dialed: peers.iter().enumerate().filter_map(dialed).collect(),
            addresses: peers.iter().map(|(_, address)| address.ip()).collect(),
        })
    }

    /// Wakes the thread from another one.
    ///
    /// # Errors
    /// If the kernel allows no more files.
    pub fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), WAKER)
    }

    /// The address that the node listens at.
    ///
    /// # Errors
    /// The system's error.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves all connections until the node stops.
    pub fn work(mut self, shared: &Shared) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !shared.is_over.load(Relaxed) {
            let now_ms = shared.now_ms();
            self.renew(shared, now_ms);
            self.accept(&shared.peers, now_ms);
            self.dial(&shared.peers, now_ms);
            let has_more = self.advance(&shared.peers, now_ms);
            let wait = if has_more { Duration::ZERO } else { WAIT };
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                polled => {
                    polled.expect("epoll_wait(2) takes a descriptor and a buffer that are valid")
                }
            }
        }
    }

    /// Ends all connections if there are new certificates: each connection was accepted with the
    /// previous ones.
    fn renew(&mut self, shared: &Shared, now_ms: u64) {
        let rejoins = shared.rejoins.swap(false, Relaxed);
        let why = match lock(&shared.renewed).take() {
            Some(tls) => {
                self.tls = Some(tls);
                "made anew, by other certificates of this node"
            }
            None if rejoins => "made anew, for a snapshot with backends that are new here",
            None => return,
        };
        for connection in std::mem::take(&mut self.connections).into_values() {
            let over = connection.over(why.into());
            self.ended(&connection, over, &shared.peers, now_ms);
        }
    }

    fn accept(&mut self, peers: &Mutex<Peers>, now_ms: u64) {
        for _ in 0..ACCEPTED_PER_TURN {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    let accepted =
                        Connection::new(stream, from.ip(), None, self.tls.as_ref(), now_ms);
                    match accepted {
                        Ok(connection) => self.add(connection, peers),
                        Err(error) => tracing::error!("cluster: {error}"),
                    }
                    self.evict(peers);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The connection is gone already; or no file is left, and the next turn finds out
                // again.
                Err(_) => {}
            }
        }
    }

    /// Ends the oldest unidentified connection, if there are too many.
    fn evict(&mut self, peers: &Mutex<Peers>) {
        let mut unknown = self.connections.iter().filter(|(_, connection)| connection.is_unknown());
        if unknown.clone().count() > UNKNOWN_MAX
            && let Some((&oldest, _)) = unknown.next()
            && let Some(connection) = self.connections.remove(&oldest)
        {
            let why = "too many connections that don't greet".to_owned();
            self.ended(&connection, Over { peer: None, session: None, why }, peers, 0);
        }
    }

    fn add(&mut self, mut connection: Connection, peers: &Mutex<Peers>) {
        self.number += 1;
        let both = Interest::READABLE | Interest::WRITABLE;
        match self.poll.registry().register(connection.stream(), Token(self.number), both) {
            Ok(()) => drop(self.connections.insert(self.number, connection)),
            Err(error) => {
                let over = Over { peer: None, session: None, why: error.to_string() };
                self.ended(&connection, over, peers, 0);
            }
        }
    }

    fn dial(&mut self, peers: &Mutex<Peers>, now_ms: u64) {
        let mut begun = Vec::new();
        for (&number, dialed) in &mut self.dialed {
            if dialed.is_under_way || now_ms < dialed.next_ms {
                continue;
            }
            let expected = Some((PeerId(number), &*dialed.name));
            let connection = TcpStream::connect(dialed.address)
                .map_err(|error| error.to_string())
                .and_then(|stream| {
                    let ip = dialed.address.ip();
                    Connection::new(stream, ip, expected, self.tls.as_ref(), now_ms)
                });
            match connection {
                Ok(connection) => {
                    dialed.is_under_way = true;
                    begun.push(connection);
                }
                Err(why) => {
                    dialed.wait(now_ms);
                    report(peers, PeerId(number), &why);
                }
            }
        }
        for connection in begun {
            self.add(connection, peers);
        }
    }

    /// Lets all connections continue. Returns whether one of them has more to do at once.
    fn advance(&mut self, peers: &Mutex<Peers>, now_ms: u64) -> bool {
        let mut has_more = false;
        let mut over = Vec::new();
        for (&number, connection) in &mut self.connections {
            match connection.advance(peers, now_ms) {
                Ok(more) => has_more |= more,
                Err(why) => over.push((number, why)),
            }
        }
        for (number, why) in over {
            if let Some(connection) = self.connections.remove(&number) {
                self.ended(&connection, why, peers, now_ms);
            }
        }
        has_more
    }

    fn ended(&mut self, connection: &Connection, over: Over, peers: &Mutex<Peers>, now_ms: u64) {
        if let Some(PeerId(number)) = connection.expected()
            && let Some(dialed) = self.dialed.get_mut(&number)
        {
            if over.session.is_some() {
                dialed.backoff_ms = BACKOFF_MS;
            }
            dialed.is_under_way = false;
            dialed.wait(now_ms);
        }
        if over.why.is_empty() {
            return;
        }
        let at = |ip| self.addresses.iter().position(|address| *address == ip).map(PeerId);
        let is_only =
            self.addresses.iter().filter(|address| **address == connection.ip).count() == 1;
        let peer = over.peer.or_else(|| at(connection.ip).filter(|_| is_only));
        match (over.session, peer) {
            (Some(session), _) => {
                let mut peers = lock(peers);
                if peers.is_current(session) {
                    tracing::warn!("cluster: peer {}: {}", peers.name(session.peer), over.why);
                }
                peers.end(session, &over.why, now_ms);
            }
            (None, Some(peer)) => report(peers, peer, &over.why),
            (None, None) => tracing::debug!("cluster: {}: {}", connection.ip, over.why),
        }
    }
}

impl Dialed {
    fn wait(&mut self, now_ms: u64) {
        self.next_ms = now_ms + self.backoff_ms;
        self.backoff_ms = (2 * self.backoff_ms).min(BACKOFF_MS_MAX);
    }
}

/// Notes why a peer has no session, and logs it once.
fn report(peers: &Mutex<Peers>, peer: PeerId, why: &str) {
    let mut peers = lock(peers);
    if peers.fail(peer, why) {
        tracing::warn!("cluster: peer {}: {why}", peers.name(peer));
    }
}
