//! Announces VIPs: a route to each that is ready, for routing daemons to learn.

mod guard;
mod hanging;
mod holds;
mod routes;

use hanging::Hanging;
use holds::Holds;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

pub use guard::{VipGuard, guard_vips};
pub use hanging::HangReporter;
pub use holds::VIP_HOLD_MAX;
pub use routes::{ROUTE_PROTOCOL, VIP_METRIC, VipRouteError, VipRoutes};

/// Interval of checks of unchanged routes: other programs may have deleted them.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Interval of attempts after an error.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The VIPs of a program, by their states.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct VipStates {
    /// VIPs that can be served.
    pub ready: BTreeSet<IpAddr>,
    /// VIPs that stay announced although they aren't ready: their next hops are being resolved.
    pub resolving: BTreeSet<IpAddr>,
    /// All VIPs. The holds of others are forgotten.
    pub configured: BTreeSet<IpAddr>,
}

impl VipStates {
    /// Whether a VIP that is announced stays so.
    fn keeps(&self, vip: &IpAddr) -> bool {
        self.resolving.contains(vip) || self.ready.contains(vip)
    }
}

/// Why a configured VIP is not announced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Withheld {
    /// An operator has withdrawn all VIPs, or the run ends.
    Withdrawn,
    /// A thread of the program hangs.
    Hanging,
    /// The VIP can't be served.
    NotReady,
    /// The VIP is ready, and must stay so for its hold.
    Held,
    /// The VIP is ready, and the program doesn't allow new ones yet.
    Waiting,
    /// The kernel has no route to the VIP, although one was asked for.
    NoRoute,
}

impl Withheld {
    /// The reason in one word, for metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Withdrawn => "withdrawn",
            Self::Hanging => "hanging",
            Self::NotReady => "not_ready",
            Self::Held => "held",
            Self::Waiting => "waiting",
            Self::NoRoute => "no_route",
        }
    }
}

/// Installs and deletes the routes to VIPs ([`VipRoutes`]) as VIPs become ready, hang or are
/// withdrawn.
///
/// A VIP that was withdrawn is held: it is announced again once it has been ready for its hold
/// without a break. The hold doubles, up to [`VIP_HOLD_MAX`], while the VIP flaps.
#[derive(Debug)]
pub struct VipAnnouncer {
    routes: VipRoutes,
    states: VipStates,
    /// Whether the states are new since the last turn.
    is_new: bool,
    /// When the routes must be checked in any case.
    due: Instant,
    /// Whether nothing is announced, ready or not: an operator has withdrawn the VIPs, or the run
    /// ends.
    is_withdrawn: bool,
    /// Whether the last turn allowed new ones.
    allows_new: bool,
    guard: Option<VipGuard>,
    hanging: Hanging,
    holds: Holds,
}

impl VipAnnouncer {
    /// Announces nothing yet. Routes that an earlier run left on the interface are deleted, or kept
    /// if this program continues in its place (`inherits`). A VIP is first held for `hold`. `guard`
    /// deletes this program's routes if it hangs.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn begin(
        interface_index: u32,
        hold: Duration,
        guard: Option<VipGuard>,
        inherits: bool,
    ) -> io::Result<Self> {
        let routes = if inherits { VipRoutes::adopt } else { VipRoutes::begin };
        Ok(Self {
            routes: routes(interface_index, VIP_METRIC)?,
            guard: guard.and_then(|guard| guard.guarding(interface_index)),
            hanging: Hanging::default(),
            holds: Holds::new(hold),
            states: VipStates::default(),
            is_new: false,
            due: Instant::now(),
            is_withdrawn: false,
            allows_new: false,
        })
    }

    /// The handle of the thread that watches others. When it reports that a thread hangs, the guard
    /// withdraws the VIPs at once; they stay withdrawn until all threads continue.
    #[must_use]
    pub fn hang_reporter(&self) -> HangReporter {
        self.hanging.reporter(self.guard.as_ref())
    }

    /// Sets the states of the VIPs from the next turn on.
    pub fn set_states(&mut self, states: VipStates) {
        self.states = states;
        self.is_new = true;
    }

    /// Announces the VIPs that are ready, and withdraws the rest. Call this in each turn of the
    /// thread that controls the program: the guard treats a longer silence as hanging.
    ///
    /// If `allows_new` is false, VIPs that are no longer ready are withdrawn, and no new one is
    /// announced. While a thread hangs, all VIPs are withdrawn. VIPs withdrawn for either reason are
    /// held.
    pub fn turn(&mut self, allows_new: bool) {
        let is_new = std::mem::take(&mut self.is_new);
        self.allows_new = allows_new;
        let now = Instant::now();
        let was_late = self.guard.as_mut().is_some_and(VipGuard::was_late);
        let is_changed = self.hanging.turn(was_late);
        let is_hanging = self.hanging.is_any();
        // A thread may have hung and continued since the last turn: then the guard has withdrawn
        // all VIPs.
        let has_hung = is_hanging || is_changed && self.guard.is_some();
        let (states, installed) = (&self.states, self.routes.installed());
        if !self.is_withdrawn {
            let gone = installed.iter().filter(|vip| has_hung || !states.keeps(vip));
            gone.for_each(|vip| self.holds.withdrawn(*vip));
        }
        if is_new {
            self.holds.retain(|vip| states.configured.contains(vip));
        }
        let fit = if is_hanging { &BTreeSet::new() } else { &states.ready };
        let is_over = self.holds.turn(fit, now);
        let kept = installed.iter().filter(|vip| states.keeps(vip));
        let new = states.ready.iter().filter(|_| allows_new);
        let may_announce =
            |vip: &&IpAddr| !self.is_withdrawn && !is_hanging && !self.holds.has(vip, now);
        let wanted: BTreeSet<_> = kept.chain(new).filter(may_announce).copied().collect();
        let is_due = is_changed || now >= self.due;
        let is_new = is_new || is_over;
        if !is_due && (wanted == *installed || self.due <= now + RETRY_INTERVAL && !is_new) {
            return;
        }
        self.set(&wanted, now);
    }

    /// Makes exactly the routes to these VIPs.
    fn set(&mut self, wanted: &BTreeSet<IpAddr>, now: Instant) {
        let before = self.routes.installed().clone();
        let result = self.routes.set(wanted);
        self.due = now + if result.is_ok() { LOOK_INTERVAL } else { RETRY_INTERVAL };
        log_errors(result);
        let installed = self.routes.installed();
        for vip in installed.difference(&before) {
            tracing::info!("announced: {vip}");
            self.holds.announced(*vip, now);
        }
        before.difference(installed).for_each(|vip| tracing::warn!("withdrawn: {vip}"));
    }

    /// Withdraws all VIPs until [`announce`](Self::announce), and returns them. An error in
    /// deleting a route is logged with the route, and deletion is tried again.
    pub fn withdraw(&mut self) -> Vec<IpAddr> {
        self.is_withdrawn = true;
        let before = self.routes.installed().clone();
        log_errors(self.routes.withdraw());
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
        self.states.ready.iter().copied()
    }

    /// VIPs that are ready but not announced yet because they were withdrawn, in order, with the
    /// remaining time.
    pub fn held(&self, now: Instant) -> impl Iterator<Item = (IpAddr, Duration)> {
        self.holds.left(now)
    }

    /// The configured VIPs in order, each with the reason why it is not announced, if it isn't.
    pub fn withheld(&self, now: Instant) -> impl Iterator<Item = (IpAddr, Option<Withheld>)> {
        self.states.configured.iter().map(move |vip| (*vip, self.why_not(vip, now)))
    }

    fn why_not(&self, vip: &IpAddr, now: Instant) -> Option<Withheld> {
        if self.routes.installed().contains(vip) {
            return None;
        }
        Some(if self.is_withdrawn {
            Withheld::Withdrawn
        } else if self.hanging.is_any() {
            Withheld::Hanging
        } else if !self.states.ready.contains(vip) {
            Withheld::NotReady
        } else if self.holds.has(vip, now) {
            Withheld::Held
        } else if self.allows_new {
            Withheld::NoRoute
        } else {
            Withheld::Waiting
        })
    }

    /// The VIPs that are announced.
    pub fn installed(&self) -> impl Iterator<Item = IpAddr> {
        self.routes.installed().iter().copied()
    }
}

fn log_errors(result: Result<(), Vec<VipRouteError>>) {
    for error in result.err().into_iter().flatten() {
        tracing::error!("announce: {error}");
    }
}
