//! Announcing VIPs: a route to each that is ready, for routing daemons to learn.

mod hold;

use crate::config::{Announce, Announced, Config};
use crate::exception::{mbufs, open_or_adopt};
use crate::failure::BadInput;
use crate::guard::{Guard, Hanging};
use crate::until::left_s;
use hold::Holds;
use hotloop::dpdk::Eal;
use hotloop_balancer::services::ServiceTable;
use hotloop_balancer::spec::{ServiceSpec, Side};
use hotloop_kernel::{
    Hops, KernelHop, KernelPort, Mbufs, PuntLimits, TapConfig, VIP_METRIC, VipRoutes,
    local_addresses,
};
use hotloop_ops::StallEvent;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often routes are looked after though nothing has changed: somebody else may have deleted them.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// When what failed is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The room that the outer header of a tunnel takes at most, in bytes.
const OUTER_BYTES_MAX: u32 = 40;

/// The interface that VIPs are routed to. What the host itself sends to a VIP comes out of it, and is
/// balanced as what ports receive.
#[derive(Debug)]
pub struct VipInterface(KernelPort<Mbufs>);

impl VipInterface {
    /// Makes the interface, or adopts the one of which a predecessor has left the file.
    ///
    /// # Errors
    /// A VIP is an address of the host, or there can't be such an interface.
    pub fn open(
        eal: Eal,
        config: &Config,
        announce: &Announce,
        file: Option<OwnedFd>,
    ) -> Result<Self, BadInput> {
        let local = local_addresses();
        let local =
            local.map_err(|error| BadInput::new(format!("the host's addresses: {error}")))?;
        check_local(config, &local)?;
        let mtu = config.balancer.mtu;
        let tap = TapConfig {
            mtu_bytes: u32::from(mtu).saturating_sub(OUTER_BYTES_MAX),
            resolves_neighbours: false,
            ..TapConfig::named(&announce.interface)
        };
        let port = open_or_adopt((&tap, file), PuntLimits::default(), mbufs(eal, config));
        let port = port.map_err(|error| BadInput::new(format!("announce.interface: {error}")))?;
        Ok(Self(port))
    }

    /// The interface, as a source of packets.
    #[must_use]
    pub const fn port(&self) -> &KernelPort<Mbufs> {
        &self.0
    }
}

/// The interface that VIPs are routed to, and what announces them, where they are announced.
///
/// # Errors
/// As [`VipInterface::open`] and [`Announcer::begin`].
pub fn open(
    eal: Eal,
    config: &Config,
    guard: Option<Guard>,
    inherited: Option<&mut HashMap<String, OwnedFd>>,
) -> Result<Option<(VipInterface, Announcer)>, BadInput> {
    let Some(announce) = &config.announce else { return Ok(None) };
    let inherits = inherited.is_some();
    let file = inherited.and_then(|it| it.remove(&announce.interface));
    let vips = VipInterface::open(eal, config, announce, file)?;
    let announcer = Announcer::begin(&vips, announce, guard, inherits)?;
    Ok(Some((vips, announcer)))
}

/// Refuses a VIP that is an address of the host: its kernel would answer clients as well.
fn check_local(config: &Config, local: &BTreeSet<IpAddr>) -> Result<(), BadInput> {
    for service in &config.services {
        if let Some(address) = local.iter().find(|it| service.address.contains(**it)) {
            return Err(BadInput::new(format!(
                "service.{}.address: {address} is an address of this host, whose kernel would answer \
                 its clients with RST; delete it from its interface (ip address del)",
                service.name
            )));
        }
    }
    Ok(())
}

/// Installs and deletes the routes to VIPs.
#[derive(Debug)]
pub struct Announcer {
    routes: VipRoutes,
    announced: Announced,
    /// The service table that was looked at last, and the kernel's next hops.
    seen: Option<(Arc<ServiceTable>, Option<Arc<Hops>>)>,
    /// The VIPs that are ready by it.
    ready: BTreeSet<IpAddr>,
    /// Those that stay announced besides: their next hops are just being asked for.
    asked: BTreeSet<IpAddr>,
    /// When the routes are to be looked after, whatever happens.
    due: Instant,
    /// Whether nothing is announced, ready or not: an operator has withdrawn the VIPs, or the run ends.
    is_withdrawn: bool,
    /// The same, for as long as a change that was not prepared is on its way.
    is_paused: bool,
    guard: Option<Guard>,
    hanging: Hanging,
    holds: Holds,
}

impl Announcer {
    /// Announces nothing yet. Routes that an earlier run left on the interface are deleted, or kept where this program
    /// goes on in its place: `inherits`. `guard` deletes those of this one where it hangs.
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin(
        interface: &VipInterface,
        announce: &Announce,
        guard: Option<Guard>,
        inherits: bool,
    ) -> Result<Self, BadInput> {
        let index = interface.0.interface_index();
        let routes = if inherits { VipRoutes::adopt } else { VipRoutes::begin };
        let routes = routes(index, VIP_METRIC);
        let routes = routes.map_err(|error| {
            BadInput::new(format!("announce: routes can't be installed: {error}"))
        })?;
        Ok(Self {
            guard: guard.and_then(|guard| guard.of(index)),
            hanging: Hanging::default(),
            holds: Holds::new(Duration::from_secs(announce.hold_s.into())),
            routes,
            announced: announce.vips,
            seen: None,
            ready: BTreeSet::new(),
            asked: BTreeSet::new(),
            due: Instant::now(),
            is_withdrawn: false,
            is_paused: false,
        })
    }

    /// What the watching thread calls where a thread hangs, or goes on: VIPs are withdrawn at once, by
    /// the guard, and until all go on.
    pub fn on_stall(&self) -> impl Fn(&StallEvent) + Send + use<> {
        self.hanging.on_stall(self.guard.as_ref())
    }

    /// Announces what is ready by this service table, which `config` was compiled to, and by the kernel's
    /// next hops, where packets to backends go by them. While workers are still to take the table up, or
    /// other nodes to say what they know of connections, `allows_new` is false: what is no longer ready is
    /// withdrawn, and nothing new is announced. While a thread hangs, nothing is. What was withdrawn for
    /// either reason is held (`announce.hold_s`).
    pub fn follow(
        &mut self,
        config: &Config,
        (table, hops): (&Arc<ServiceTable>, Option<&Arc<Hops>>),
        allows_new: bool,
    ) {
        let is_new = self.see(config, (table, hops));
        let now = Instant::now();
        let was_late = self.guard.as_mut().is_some_and(Guard::was_late);
        let is_changed = self.hanging.turn(was_late);
        let (is_kept_back, is_hanging) =
            (self.is_withdrawn || self.is_paused, self.hanging.is_any());
        // A thread may have hung and gone on since the last turn: then the guard has withdrawn all.
        let has_hung = is_hanging || is_changed && self.guard.is_some();
        let installed = self.routes.installed();
        if !is_kept_back {
            let is_kept = |vip: &&IpAddr| self.asked.contains(vip) || self.ready.contains(vip);
            let gone = installed.iter().filter(|vip| has_hung || !is_kept(vip));
            gone.for_each(|vip| self.holds.withdrawn(*vip));
        }
        if is_new {
            let vips = config.services.iter().filter(|it| it.address.is_host());
            let vips: HashSet<_> = vips.map(|it| it.address.network()).collect();
            self.holds.retain(|vip| vips.contains(vip));
        }
        let fit = if is_hanging { &BTreeSet::new() } else { &self.ready };
        let is_over = self.holds.turn(fit, now);
        let kept =
            installed.iter().filter(|vip| self.asked.contains(vip) || self.ready.contains(vip));
        let new = self.ready.iter().filter(|_| allows_new);
        let may_announce =
            |vip: &&IpAddr| !is_kept_back && !is_hanging && !self.holds.has(vip, now);
        let wanted: BTreeSet<_> = kept.chain(new).filter(may_announce).copied().collect();
        let is_due = is_changed || now >= self.due;
        let is_new = is_new || is_over;
        if !is_due && (wanted == *installed || self.due <= now + RETRY_INTERVAL && !is_new) {
            return;
        }
        self.set(&wanted, now);
    }

    /// Finds out what is ready, where that may have changed. Returns whether it may.
    fn see(
        &mut self,
        config: &Config,
        (table, hops): (&Arc<ServiceTable>, Option<&Arc<Hops>>),
    ) -> bool {
        let is_new = !self.seen.as_ref().is_some_and(|(seen_table, seen_hops)| {
            let same_hops = seen_hops.as_ref().map(Arc::as_ptr) == hops.map(Arc::as_ptr);
            same_hops && Arc::ptr_eq(seen_table, table)
        });
        if is_new {
            let by_kernel = config.goes_by_kernel(Side::has_backends);
            let to_backends = hops.filter(|_| by_kernel).map(Arc::as_ref);
            let ready = |is_met: fn(Option<&KernelHop>) -> bool| {
                let is_met = |backend| to_backends.is_none_or(|hops| is_met(hops.of(backend)));
                ready(config, table, self.announced, is_met)
            };
            self.ready = ready(|hop| hop.is_some_and(KernelHop::is_known));
            self.asked = ready(|hop| !hop.is_some_and(KernelHop::has_failed));
            self.seen = Some((Arc::clone(table), hops.cloned()));
        }
        is_new
    }

    /// Makes the routes those to these VIPs.
    fn set(&mut self, wanted: &BTreeSet<IpAddr>, now: Instant) {
        let before = self.routes.installed().clone();
        let result = self.routes.set(wanted);
        self.due = now + if result.is_ok() { LOOK_INTERVAL } else { RETRY_INTERVAL };
        for error in result.err().into_iter().flatten() {
            tracing::error!("announce: {error}");
        }
        let installed = self.routes.installed();
        for vip in installed.difference(&before) {
            tracing::info!("announced: {vip}");
            self.holds.announced(*vip, now);
        }
        before.difference(installed).for_each(|vip| tracing::warn!("withdrawn: {vip}"));
    }

    /// Whether nothing is announced from the next turn on, whatever else there is.
    pub fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        self.due = Instant::now();
    }

    /// Withdraws all VIPs until [`announce`](Self::announce), and returns them. A route that can't be
    /// deleted is named on standard error, and tried again.
    pub fn withdraw(&mut self) -> Vec<IpAddr> {
        self.is_withdrawn = true;
        let before = self.routes.installed().clone();
        for error in self.routes.withdraw().err().into_iter().flatten() {
            tracing::error!("announce: {error}");
        }
        let gone: Vec<_> = before.difference(self.routes.installed()).copied().collect();
        gone.iter().for_each(|vip| tracing::warn!("withdrawn: {vip}"));
        gone
    }

    /// Leaves what is announced as it is, to a program that goes on in this one's place.
    pub fn leave(self) {
        self.routes.leave();
    }

    /// Whether an operator has withdrawn the VIPs.
    #[must_use]
    pub const fn is_withdrawn(&self) -> bool {
        self.is_withdrawn
    }

    /// Announces what is ready again, from the next turn on and however long it was to be held, and
    /// returns what that is.
    pub fn announce(&mut self) -> impl Iterator<Item = IpAddr> {
        self.is_withdrawn = false;
        self.holds.release();
        self.ready.iter().copied()
    }

    /// The VIPs that are ready and not announced yet because they were withdrawn, and in how many seconds
    /// they are.
    pub fn held(&self, now: Instant) -> BTreeMap<IpAddr, u64> {
        self.holds.left(now).map(|(vip, left)| (vip, left_s(now + left, now))).collect()
    }

    /// The VIPs that are announced.
    pub fn installed(&self) -> impl Iterator<Item = IpAddr> {
        self.routes.installed().iter().copied()
    }
}

/// The VIPs of a service table that are ready: any of the services at that address has a backend that is up
/// and may get new connections, and whose next hop is as it should be. Of those that are always announced,
/// any backend will do, or none where there are none.
///
/// A service whose address is a prefix has none: its addresses are announced by hand.
fn ready(
    config: &Config,
    table: &ServiceTable,
    announced: Announced,
    has_hop: impl Fn(IpAddr) -> bool,
) -> BTreeSet<IpAddr> {
    let is_always = announced == Announced::Always;
    let have_all = |service: &ServiceSpec| service.backends.iter().all(|it| has_hop(it.address));
    let mut is_ready: Vec<_> =
        config.services.iter().map(|service| is_always && have_all(service)).collect();
    for target in table.targets() {
        if let Some(service) = target.service {
            let is_live = is_always || target.is_up && target.weight > 0;
            is_ready[service as usize] |= is_live && has_hop(target.address());
        }
    }
    let services = config.services.iter().zip(is_ready).filter(|(_, is_ready)| *is_ready);
    let hosts = services.filter(|(service, _)| service.address.is_host());
    hosts.map(|(service, _)| service.address.network()).collect()
}
