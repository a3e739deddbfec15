//! Down backends: by this node's probes and, if nodes exchange their findings, by those of the
//! other nodes.
//!
//! Part of [`Members`]; reads the configuration and the store. Without findings from other nodes,
//! this node's own findings decide.

use super::cluster_link::ClusterLink;
use super::members::Members;
use crate::answer;
use crate::config::Config;
use hotloop_balancer::spec::ServiceSpec;
use hotloop_cluster::store::Finding;
use hotloop_health::quorum::{Down, name, names, needed_count, verdict};
use hotloop_health::settings::Health;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Minimum interval of reports to the other nodes.
const SAY_INTERVAL: Duration = Duration::from_millis(200);

/// Minimum interval of joint verdicts: one may take milliseconds if much is down.
const DECIDE_INTERVAL: Duration = Duration::from_millis(50);

/// How long nodes may differ before that is logged: they never find a backend down at the same
/// moment.
const DIFFER_MAX: Duration = Duration::from_secs(3);

/// Maximum number of backends to name at once if nodes differ on them.
const NAMED_MAX: usize = 10;

/// The findings of this node's probes, and of the other nodes.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The backends that this node's probes find down.
    own: Arc<Down>,
    /// The last findings passed to the store, and when.
    said: Option<(Arc<Down>, Instant)>,
    /// The other nodes' findings at the last verdict; `None` if only this node's own findings
    /// count.
    others: Option<Arc<Vec<Finding>>>,
    /// Whether a new verdict is due.
    is_stale: bool,
    decided: Option<Instant>,
    /// The backends on which the verdict differs from this node's findings: since when, and whether
    /// that was logged.
    differing: HashMap<(IpAddr, Health), (Instant, bool)>,
}

impl Findings {
    /// Sets this node's findings until its probes report others.
    pub fn begin_with(&mut self, down: Down) {
        self.own = Arc::new(down);
    }

    /// Number of this node's probes that find a backend down.
    pub fn own_count(&self) -> usize {
        self.own.len()
    }

    /// Number of nodes whose findings count, including this one.
    pub fn node_count(&self) -> usize {
        self.others().len() + 1
    }

    fn others(&self) -> &[Finding] {
        self.others.as_deref().map_or(&[], Vec::as_slice)
    }

    /// The nodes that find this backend down; `node` is this node's name.
    fn down_on<'a>(&'a self, key: &(IpAddr, Health), node: &'a str) -> Vec<&'a str> {
        let name = name(key.0, &key.1);
        let others = self.others().iter().filter(|finding| finding.down.contains(&name));
        let own = self.own.contains(key).then_some(node);
        own.into_iter().chain(others.map(|finding| finding.node.as_str())).collect()
    }
}

impl Members {
    /// Takes the findings of this node's probes since the last turn, and those of other nodes.
    pub(super) fn follow_health(&mut self, config: &Config, link: &ClusterLink) {
        while let Ok(change) = self.changes.try_recv() {
            let way = way(&change.health);
            match change.is_up {
                true => tracing::info!("health: {}{way} is up: {}", change.address, change.why),
                false => tracing::warn!("health: {}{way} is down: {}", change.address, change.why),
            }
            let key = (change.address, change.health);
            let is_alone = self.findings.others().is_empty();
            let own = Arc::make_mut(&mut self.findings.own);
            let is_new = match change.is_up {
                true => own.remove(&key),
                false => own.insert(key.clone()),
            };
            if is_new && is_alone {
                // At once, without a look at the other down backends.
                let down = &mut Arc::make_mut(&mut self.overrides).down;
                let is_changed = if change.is_up { down.remove(&key) } else { down.insert(key) };
                if is_changed {
                    self.is_changed = true;
                }
            }
            self.findings.is_stale |= is_new && !is_alone;
        }
        self.say_findings(link);
        self.decide_health(false, config, link);
        self.say_differing(link.node_name());
    }

    /// Determines the down backends from the probes' present states.
    pub(super) fn refresh_down(&mut self, config: &Config, link: &ClusterLink) {
        let states = self.probes.states();
        let down = states.iter().filter(|state| !state.is_up);
        let down = down.map(|state| (state.address, state.health.clone())).collect();
        self.findings.own = Arc::new(down);
        self.decide_health(true, config, link);
    }

    /// Reports new findings to the other nodes.
    fn say_findings(&mut self, link: &ClusterLink) {
        let Some(store) = &link.store else { return };
        let Findings { own, said, .. } = &mut self.findings;
        let is_new = said.as_ref().is_none_or(|(said, _)| !Arc::ptr_eq(said, own));
        if is_new && said.as_ref().is_none_or(|(_, at)| at.elapsed() >= SAY_INTERVAL) {
            // From now on, a change copies the set.
            store.watch.find(Arc::new(names(own)));
            *said = Some((Arc::clone(own), Instant::now()));
        }
    }

    /// Makes a new verdict if it may differ from the previous one: at once if `is_now`, or else
    /// after the minimum interval.
    fn decide_health(&mut self, is_now: bool, config: &Config, link: &ClusterLink) {
        let others = link.store.as_ref().and_then(|store| store.watch.others());
        let is_same = match (&others, &self.findings.others) {
            (Some(others), Some(before)) => Arc::ptr_eq(others, before),
            (others, before) => others.is_none() && before.is_none(),
        };
        if is_same && !self.findings.is_stale && !is_now {
            return;
        }
        let is_early =
            self.findings.decided.is_some_and(|decided| decided.elapsed() < DECIDE_INTERVAL);
        // Without other nodes there is nothing to wait for.
        if is_early && !is_now && others.is_some() && self.findings.others.is_some() {
            return;
        }
        if !is_same {
            self.say_nodes(others.as_deref().map(Vec::as_slice), config);
        }
        let now = Instant::now();
        let own = &self.findings.own;
        let down = match &others {
            Some(others) if !others.is_empty() => {
                let others: Vec<_> = others.iter().map(|finding| &*finding.down).collect();
                verdict(own, &others, config.quorum, config.probed())
            }
            _ => Down::clone(own),
        };
        let differing = own.symmetric_difference(&down);
        let since = |name: &_| self.findings.differing.get(name).copied().unwrap_or((now, false));
        let differing: HashMap<_, _> = differing.map(|name| (name.clone(), since(name))).collect();
        let before = std::mem::replace(&mut self.findings.differing, differing);
        let ended = before
            .iter()
            .filter(|(key, (_, is_said))| *is_said && !self.findings.differing.contains_key(*key));
        for ((address, health), _) in ended.take(NAMED_MAX) {
            tracing::info!("health: {address}{}: what this node finds counts again", way(health));
        }
        self.findings.others = others;
        (self.findings.is_stale, self.findings.decided) = (false, Some(now));
        if self.overrides.down != down {
            Arc::make_mut(&mut self.overrides).down = down;
            self.is_changed = true;
        }
    }

    /// Logs the nodes whose findings count, if they have changed.
    fn say_nodes(&self, others: Option<&[Finding]>, config: &Config) {
        let names = |others: &[Finding]| -> Vec<_> {
            others.iter().map(|finding| finding.node.clone()).collect()
        };
        let (before, now) = (self.findings.others.as_deref(), others.map(names));
        if now == before.map(|findings| names(findings)) {
            return;
        }
        match now {
            None => tracing::warn!(
                "health: what this node's own probes find counts, as it can't exchange that with the other nodes"
            ),
            Some(names) if names.is_empty() => {
                tracing::info!("health: no other node says what it finds");
            }
            Some(names) => tracing::info!(
                "health: a backend is down once {} of {} nodes find it down; the others are {}",
                needed_count(config.quorum, names.len() + 1),
                names.len() + 1,
                names.join(", ")
            ),
        }
    }

    /// Logs the backends on which the verdict has differed from this node's findings for some time.
    fn say_differing(&mut self, node: &str) {
        let lasts = |(since, is_said): &(Instant, bool)| !is_said && since.elapsed() >= DIFFER_MAX;
        let differing = &self.findings.differing;
        if !differing.values().any(lasts) {
            return;
        }
        let new: Vec<_> =
            differing.iter().filter(|(_, since)| lasts(since)).map(|(key, _)| key).collect();
        for key in new.iter().take(NAMED_MAX) {
            let down_on = self.findings.down_on(key, node);
            let state = if self.overrides.down.contains(*key) { "down" } else { "up" };
            tracing::warn!(
                "health: {}{} counts as {state}, other than this node finds: {} of {} nodes find it down{}",
                key.0,
                way(&key.1),
                down_on.len(),
                self.findings.node_count(),
                listed(&down_on)
            );
        }
        if let Some(more) = new.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
            tracing::warn!("health: so do {more} more; `ipip-lb ctl backends` shows them");
        }
        for (since, is_said) in self.findings.differing.values_mut() {
            *is_said |= since.elapsed() >= DIFFER_MAX;
        }
    }

    /// The exchange of findings, for `ctl status`; `None` without an exchange.
    pub(super) fn health(&self, config: &Config, link: &ClusterLink) -> Option<answer::Health> {
        let nodes = self.findings.node_count();
        link.store.as_ref().map(|_| answer::Health {
            is_shared: self.findings.others.is_some(),
            nodes,
            needed: needed_count(config.quorum, nodes),
            down_here: self.findings.own_count(),
        })
    }

    /// The nodes' findings on a backend, if this node's findings differ from the verdict.
    pub(super) fn difference(
        &self,
        service: &ServiceSpec,
        address: IpAddr,
        config: &Config,
        link: &ClusterLink,
    ) -> Option<answer::Difference> {
        if self.findings.differing.is_empty() {
            return None;
        }
        let keys: Vec<_> = config.ways_of(&service.name).map(|way| (address, way)).collect();
        let is_any = |down: &Down| keys.iter().any(|key| down.contains(key));
        let (here, counts) = (is_any(&self.findings.own), is_any(&self.overrides.down));
        if here == counts {
            return None;
        }
        let mut down_on: Vec<_> =
            keys.iter().flat_map(|key| self.findings.down_on(key, link.node_name())).collect();
        down_on.sort_unstable();
        down_on.dedup();
        let nodes = self.findings.node_count();
        Some(answer::Difference {
            is_up_here: !here,
            down_on: down_on.into_iter().map(str::to_owned).collect(),
            nodes,
            needed: needed_count(config.quorum, nodes),
        })
    }
}

/// The probe's route, if not the default.
fn way(health: &Health) -> String {
    match health.via.tunnel() {
        Some(path) => format!(" through its tunnel to {}", path.vip),
        None => String::new(),
    }
}

/// Names in parentheses; empty without names.
fn listed(names: &[&str]) -> String {
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}
