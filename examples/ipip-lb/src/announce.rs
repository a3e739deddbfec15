//! Announcing VIPs: a route to each that is ready, for routing daemons to learn.

mod hold;

use crate::config::{Announce, Announced, Config};
use crate::exception::{mbufs, open_or_adopt};
use crate::failure::BadInput;
use crate::until::left_s;
use crate::vip_guard::{Guard, Hanging};
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

/// Interval of checks of unchanged routes: other programs may have deleted them.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Interval of attempts after an error.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum length of a tunnel's outer header, in bytes.
const OUTER_BYTES_MAX: u32 = 40;

/// The interface that VIPs are routed to. Packets from the host itself to a VIP come out of it, and
/// are balanced like packets from ports.
#[derive(Debug)]
pub struct VipInterface(KernelPort<Mbufs>);

impl VipInterface {
    /// Makes the interface, or adopts the predecessor's from its file.
    ///
    /// # Errors
    /// If a VIP is an address of the host, or the interface can't be made.
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
        let port = open_or_adopt(&tap, file, PuntLimits::default(), mbufs(eal, config));
        let port = port.map_err(|error| BadInput::new(format!("announce.interface: {error}")))?;
        Ok(Self(port))
    }

    /// The interface, as a source of packets.
    #[must_use]
    pub const fn port(&self) -> &KernelPort<Mbufs> {
        &self.0
    }
}

/// The interface that VIPs are routed to, and the announcer, if VIPs are announced.
///
/// # Errors
/// See [`VipInterface::open`] and [`Announcer::begin`].
pub fn open(
    eal: Eal,
    config: &Config,
    guard: Option<Guard>,
    inherited: Option<&mut HashMap<String, OwnedFd>>,
) -> Result<Option<(VipInterface, Announcer)>, BadInput> {
    let Some(announce) = &config.announce else { return Ok(None) };
    let inherits = inherited.is_some();
    let file = inherited.and_then(|files| files.remove(&announce.interface));
    let vips = VipInterface::open(eal, config, announce, file)?;
    let announcer = Announcer::begin(&vips, announce, guard, inherits)?;
    Ok(Some((vips, announcer)))
}

/// Refuses a VIP that is an address of the host: the host's kernel would answer clients as well.
fn check_local(config: &Config, local: &BTreeSet<IpAddr>) -> Result<(), BadInput> {
    for service in &config.services {
        if let Some(address) = local.iter().find(|own| service.address.contains(**own)) {
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
    /// The last service table that was examined, and the kernel's next hops.
    seen: Option<(Arc<ServiceTable>, Option<Arc<Hops>>)>,
    /// The VIPs that are ready according to these.
    ready: BTreeSet<IpAddr>,
    /// VIPs that stay announced although they aren't ready: their next hops are being resolved.
    asked: BTreeSet<IpAddr>,
    /// When the routes must be checked in any case.
    due: Instant,
    /// Whether nothing is announced, ready or not: an operator has withdrawn the VIPs, or the run
    /// ends.
    is_withdrawn: bool,
    /// The same, while an unprepared change is in progress.
    is_paused: bool,
    guard: Option<Guard>,
    hanging: Hanging,
    holds: Holds,
}

impl Announcer {
    /// Announces nothing yet. Routes that an earlier run left on the interface are deleted, or kept
    /// if this program continues in its place (`inherits`). `guard` deletes this program's routes
    /// if it hangs.
    ///
    /// # Errors
    /// The kernel's error.
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

    /// The watching thread's callback when a thread hangs, or continues: the guard withdraws VIPs
    /// at once, and until all threads continue.
    pub fn on_stall(&self) -> impl Fn(&StallEvent) + Send + use<> {
        self.hanging.on_stall(self.guard.as_ref())
    }

    /// Announces the VIPs that are ready in this service table, which was compiled from `config`,
    /// and with the kernel's next hops, if packets to backends use them.
    ///
    /// `allows_new` is false while workers have not switched to the table, or other nodes have not
    /// reported their connections: VIPs that are no longer ready are withdrawn, and no new one is
    /// announced. While a thread hangs, all VIPs are withdrawn. VIPs withdrawn for either reason
    /// are held (`announce.hold_s`).
    pub fn follow(
        &mut self,
        config: &Config,
        table: &Arc<ServiceTable>,
        hops: Option<&Arc<Hops>>,
        allows_new: bool,
    ) {
        let is_new = self.see(config, table, hops);
        let now = Instant::now();
        let was_late = self.guard.as_mut().is_some_and(Guard::was_late);
        let is_changed = self.hanging.turn(was_late);
        let (is_kept_back, is_hanging) =
            (self.is_withdrawn || self.is_paused, self.hanging.is_any());
        // A thread may have hung and continued since the last turn: then the guard has withdrawn
        // all VIPs.
        let has_hung = is_hanging || is_changed && self.guard.is_some();
        let installed = self.routes.installed();
        if !is_kept_back {
            let is_kept = |vip: &&IpAddr| self.asked.contains(vip) || self.ready.contains(vip);
            let gone = installed.iter().filter(|vip| has_hung || !is_kept(vip));
            gone.for_each(|vip| self.holds.withdrawn(*vip));
        }
        if is_new {
            let vips = config.services.iter().filter(|service| service.address.is_host());
            let vips: HashSet<_> = vips.map(|service| service.address.network()).collect();
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

    /// Determines the ready VIPs, if they may have changed. Returns whether they may.
    fn see(
        &mut self,
        config: &Config,
        table: &Arc<ServiceTable>,
        hops: Option<&Arc<Hops>>,
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

    /// Makes exactly the routes to these VIPs.
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

    /// Sets whether nothing is announced from the next turn on.
    pub fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        self.due = Instant::now();
    }

    /// Withdraws all VIPs until [`announce`](Self::announce), and returns them. An error in
    /// deleting a route is logged with the route, and deletion is tried again.
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

    /// Leaves announced routes in place, for a program that continues in this one's place.
    pub fn leave(self) {
        self.routes.leave();
    }

    /// Whether an operator has withdrawn the VIPs.
    #[must_use]
    pub const fn is_withdrawn(&self) -> bool {
        self.is_withdrawn
    }

    /// Announces ready VIPs again, from the next turn on and whatever their hold, and returns them.
    pub fn announce(&mut self) -> impl Iterator<Item = IpAddr> {
        self.is_withdrawn = false;
        self.holds.release();
        self.ready.iter().copied()
    }

    /// VIPs that are ready but not announced yet because they were withdrawn, with the remaining
    /// seconds.
    pub fn held(&self, now: Instant) -> BTreeMap<IpAddr, u64> {
        self.holds.left(now).map(|(vip, left)| (vip, left_s(now + left, now))).collect()
    }

    /// The VIPs that are announced.
    pub fn installed(&self) -> impl Iterator<Item = IpAddr> {
        self.routes.installed().iter().copied()
    }
}

/// The VIPs of a service table that are ready: a service at that address has a backend that is up,
/// may get new connections, and has a valid next hop. Services that are always announced are ready
/// with any backend, and without backends.
///
/// A service with a prefix as its address has no VIPs here: its addresses are announced by hand.
fn ready(
    config: &Config,
    table: &ServiceTable,
    announced: Announced,
    has_hop: impl Fn(IpAddr) -> bool,
) -> BTreeSet<IpAddr> {
    let is_always = announced == Announced::Always;
    let have_all =
        |service: &ServiceSpec| service.backends.iter().all(|backend| has_hop(backend.address));
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
