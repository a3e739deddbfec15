//! Brings the kernel's routes and neighbours to the packet path, on a thread of its own.

mod hops;
mod packets;

use super::follower::KernelFollower;
use super::netlink::Requests;
use super::routes::{KernelRoutes, RouteTarget, scoped, unscoped};
use super::tables::{ChangeCounts, KernelNeighbour, NeighbourState};
use hops::{known_of, ways};
use hotloop_engine::Publisher;
use hotloop_neighbours::{LinkId, Neighbours};
use hotloop_packet::ethernet::MacAddress;
use hotloop_privileges::{Capabilities, keep};
use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourFlags, NeighbourMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use hops::{HopChange, Hops, KernelHop, Way};
pub use packets::{CoreRoutes, PacketRoutes, RoutedPort};

/// The time between two checks for changes and requests.
const TURN: Duration = Duration::from_millis(5);

/// The time between two full checks, even if nothing has changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// At most one part in `TIME_PARTS` of the thread's time goes into following changes.
const TIME_PARTS: u32 = 5;

/// The time between two requests for a neighbour (RFC 4861, section 10: RETRANS_TIMER).
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two requests for a neighbour that did not answer, while no packets wait for it.
const ASK_FAILED_INTERVAL: Duration = Duration::from_secs(5);

/// The most requests in a turn: the kernel sends each at once.
const ASKS_A_TURN: usize = 64;

/// Next hops by the kernel's routes and neighbours, for the packet path, kept up to date by a
/// thread of its own.
///
/// - [`KernelRoutes`], by a program's interfaces, are published to cores whenever they change.
/// - The kernel's neighbours on these interfaces are fed to [`Neighbours`], for as long as the
///   kernel uses them.
/// - The kernel resolves the neighbours that cores [request](Neighbours::take_requests), gateways,
///   and the next hops of [destinations](Self::keep_resolved). It checks them again once their
///   entries are `stale`.
///
/// The kernel itself sends ARP and neighbour discovery out of its interface. The thread asks for
/// that by netlink (`RTM_NEWNEIGH` with `NTF_USE`, like `ip neighbour … use`), which needs
/// `CAP_NET_ADMIN`; a program with a TAP interface has that. A datagram to the neighbour would need
/// no capability, but firewalls and policy routes would apply, and it could not reach a gateway
/// without a route (`onlink`).
pub struct KernelNextHops {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State shared with the thread.
#[derive(Default)]
struct Shared {
    destinations: Mutex<Arc<[IpAddr]>>,
    hops: Mutex<Arc<Hops>>,
    is_stopping: AtomicBool,
}

impl KernelNextHops {
    /// Starts to publish routes by the interfaces with these numbers, and to feed neighbours. Cores
    /// begin with `routes`, and `publisher` sends them later ones.
    ///
    /// # Errors
    /// The kernel refuses a socket or the thread.
    pub fn start(
        follower: KernelFollower,
        interfaces: Vec<u32>,
        neighbours: Arc<Neighbours>,
        routes: Arc<KernelRoutes>,
        publisher: Publisher<KernelRoutes>,
    ) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let now = Instant::now();
        let mut resolver = Resolver {
            shared: Arc::clone(&shared),
            requests: Requests::open()?,
            follower,
            interfaces,
            neighbours,
            publisher,
            routes,
            seen: None,
            destinations: Arc::default(),
            ways: Vec::new(),
            of: Arc::default(),
            fed: HashMap::new(),
            asked: HashMap::new(),
            asks_left: 0,
            is_refused: false,
            not_before: now,
            look_at: now,
        };
        let thread = std::thread::Builder::new().name("next-hops".into()).spawn(move || {
            keep(Capabilities::NET_ADMIN);
            while !resolver.shared.is_stopping.load(Relaxed) {
                resolver.turn();
                std::thread::park_timeout(TURN);
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Keeps the next hops of these addresses resolved from now on, even without packets to them.
    pub fn keep_resolved(&self, destinations: Arc<[IpAddr]>) {
        *lock(&self.shared.destinations) = destinations;
    }

    /// The current next hops: the same [`Arc`] as before if nothing has changed.
    #[must_use]
    pub fn hops(&self) -> Arc<Hops> {
        Arc::clone(&lock(&self.shared.hops))
    }
}

impl Drop for KernelNextHops {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for KernelNextHops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelNextHops").field("hops", &self.hops()).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State of the thread.
struct Resolver {
    shared: Arc<Shared>,
    requests: Requests,
    follower: KernelFollower,
    interfaces: Vec<u32>,
    neighbours: Arc<Neighbours>,
    publisher: Publisher<KernelRoutes>,
    /// The routes last published.
    routes: Arc<KernelRoutes>,
    /// Change counts at the last look at the tables.
    seen: Option<ChangeCounts>,
    destinations: Arc<[IpAddr]>,
    /// The destinations' ways, each with its number of destinations.
    ways: Vec<(Way, usize)>,
    of: Arc<HashMap<IpAddr, usize>>,
    /// The neighbours that cores have from this thread.
    fed: HashMap<IpAddr, MacAddress>,
    /// Time of the last request to the kernel for each neighbour.
    asked: HashMap<IpAddr, Instant>,
    asks_left: usize,
    /// Whether the kernel refused a request, which has been logged.
    is_refused: bool,
    /// Earliest time of the next look at changes, and time of the next full look.
    not_before: Instant,
    look_at: Instant,
}

impl Resolver {
    fn turn(&mut self) {
        self.publisher.collect();
        self.asks_left = ASKS_A_TURN;
        self.take_requests();
        let now = Instant::now();
        let counts = self.follower.change_counts();
        let destinations = Arc::clone(&lock(&self.shared.destinations));
        // An address that comes or goes brings and takes routes.
        let paths = |counts: ChangeCounts| (counts.links, counts.routes);
        let is_moved = !Arc::ptr_eq(&destinations, &self.destinations)
            || self.seen.map(paths) != Some(paths(counts));
        let is_changed = is_moved || self.seen != Some(counts) || now >= self.look_at;
        if !is_changed || now < self.not_before {
            return;
        }
        self.seen = Some(counts);
        if is_moved {
            self.destinations = destinations;
            self.follow_routes();
        }
        self.follow_neighbours(now);
        self.not_before = now + now.elapsed() * TIME_PARTS;
        self.look_at = if self.asks_left == 0 { now } else { now + LOOK_INTERVAL };
    }

    /// Publishes the routes, and looks up the destinations' ways.
    fn follow_routes(&mut self) {
        let Self { follower, interfaces, destinations, .. } = self;
        let (routes, (ways, of)) = follower.read(|tables| {
            let routes = KernelRoutes::new(tables, interfaces);
            let ways = ways(tables, interfaces, destinations, &routes);
            (routes, ways)
        });
        (self.ways, self.of) = (ways, Arc::new(of));
        if routes != *self.routes {
            self.routes = Arc::new(routes);
            self.publisher.publish(Arc::clone(&self.routes));
        }
    }

    /// Feeds the neighbours, and requests missing ones.
    fn follow_neighbours(&mut self, now: Instant) {
        let Self { follower, interfaces, ways, .. } = self;
        let (known, hops) = follower.read(|tables| {
            let known = tables.neighbours().filter_map(|(index, address, known)| {
                let interface = interfaces.iter().position(|known| *known == index)?;
                Some((scoped(address, interface), known.mac?))
            });
            let hop = |(way, count): &(Way, usize)| KernelHop {
                way: way.clone(),
                neighbour: known_of(tables, interfaces, way),
                destination_count: *count,
            };
            (known.collect::<HashMap<_, _>>(), ways.iter().map(hop).collect::<Vec<_>>())
        });
        self.feed(known);
        for hop in &hops {
            if let Way::Neighbour { interface, address } = hop.way {
                self.ask(interface, address, hop.neighbour, ASK_FAILED_INTERVAL);
            }
        }
        self.asked.retain(|_, asked| now.duration_since(*asked) < 2 * ASK_FAILED_INTERVAL);
        let mut said = lock(&self.shared.hops);
        if said.hops != hops || !Arc::ptr_eq(&said.of, &self.of) {
            *said = Arc::new(Hops { hops, of: Arc::clone(&self.of) });
        }
    }

    /// Replaces the neighbours that cores have from this thread.
    fn feed(&mut self, known: HashMap<IpAddr, MacAddress>) {
        for neighbour in self.fed.keys().filter(|fed| !known.contains_key(fed)) {
            self.neighbours.forget(*neighbour);
            self.asked.remove(neighbour);
        }
        // An entry that a core requested may have taken its place.
        let lasting = hotloop_stage::Instant::from_ns(u64::MAX);
        for (neighbour, mac) in &known {
            if self.neighbours.mac(LinkId::SYSTEM, *neighbour, lasting) != Some(*mac) {
                self.neighbours.set(*neighbour, *mac);
            }
        }
        self.fed = known;
    }

    /// Has the kernel resolve the neighbours that packets wait for.
    fn take_requests(&mut self) {
        for neighbour in self.neighbours.take_requests() {
            let Some(interface) = interface_of(&self.routes, neighbour) else { continue };
            let (address, index) = (unscoped(neighbour).0, self.interfaces[interface]);
            let known = self.follower.read(|tables| tables.neighbour(index, address));
            if let Some(mac) = known.and_then(|known| known.mac) {
                self.neighbours.set(neighbour, mac);
            }
            self.ask(interface, address, known, ASK_INTERVAL);
        }
    }

    /// Has the kernel resolve a neighbour that it doesn't know, or that it would check before the
    /// next use.
    fn ask(
        &mut self,
        interface: usize,
        address: IpAddr,
        known: Option<KernelNeighbour>,
        failed_interval: Duration,
    ) {
        let interval = match known.map(|known| known.state) {
            None | Some(NeighbourState::Stale) => ASK_INTERVAL,
            Some(NeighbourState::Failed) => failed_interval,
            Some(_) => return,
        };
        let (key, now) = (scoped(address, interface), Instant::now());
        let is_due =
            self.asked.get(&key).is_none_or(|asked| now.duration_since(*asked) >= interval);
        if self.asks_left == 0 || !is_due {
            return;
        }
        self.asks_left -= 1;
        self.asked.insert(key, now);
        let asked =
            self.requests.change(request(self.interfaces[interface], address), NLM_F_CREATE);
        match asked {
            Ok(()) => self.is_refused = false,
            Err(error) if !self.is_refused => {
                self.is_refused = true;
                tracing::error!(
                    "the kernel does not resolve {address}: {error}; its interface has to be up, the \
                     program to have CAP_NET_ADMIN, and the kernel room for more neighbours \
                     (net.ipv4.neigh.default.gc_thresh3, net.ipv6.neigh.default.gc_thresh3)"
                );
            }
            Err(_) => {}
        }
    }
}

/// The interface of a neighbour that cores requested.
fn interface_of(routes: &KernelRoutes, neighbour: IpAddr) -> Option<usize> {
    let gateway = routes.gateways().find(|(_, address)| *address == neighbour);
    gateway.map(|(interface, _)| interface).or_else(|| match routes.lookup(neighbour) {
        RouteTarget::Via { interface, .. } => Some(unscoped(neighbour).1.unwrap_or(interface)),
        _ => None,
    })
}

/// The request that makes the kernel resolve a neighbour, or check it again.
fn request(interface_index: u32, address: IpAddr) -> RouteNetlinkMessage {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = interface_index;
    message.header.flags = NeighbourFlags::Use;
    message.header.family =
        if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.attributes.push(NeighbourAttribute::Destination(address.into()));
    RouteNetlinkMessage::NewNeighbour(message)
}
