//! Drains with an end: once its time is over, or its last connection has ended, a backend is
//! removed.
//!
//! [`Drains`] belong to [`Members`]; the [`Publisher`] builds a table without the backends whose
//! drains have ended. A backend never counts as empty before all workers have stopped giving it new
//! connections, nor while another node of a cluster has connections to it, or any node may have
//! forgotten some.

use super::build::AfterBuild;
use super::cluster_link::ClusterLink;
use super::members::Members;
use super::publisher::Publisher;
use crate::until::Until;
use hotloop_balancer::services::{Removal, TargetName};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Interval of checks of drained backends.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Delay before a failed removal is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The backends that are drained until an end, and then removed.
#[derive(Debug, Default)]
pub struct Drains {
    plans: BTreeMap<TargetName, Until>,
    /// Time of the next check.
    due: Option<Instant>,
}

/// A backend at the end of its drain, with its number of connections left.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Drained {
    pub name: TargetName,
    connection_count: u64,
}

impl Drains {
    /// Plans the removal of a backend, in place of an earlier plan.
    pub fn plan(&mut self, name: TargetName, until: Until, now: Instant) {
        tracing::info!("drain: {} is to be removed {}", shown(&name), until.ending(now).when());
        self.plans.insert(name, until);
    }

    /// Cancels the removal of a backend, for the given reason.
    pub fn cancel(&mut self, name: &TargetName, why: &str) {
        if self.plans.remove(name).is_some() {
            tracing::info!("drain: {} is no longer to be removed: {why}", shown(name));
        }
    }

    /// Forgets a backend that was removed by a command.
    pub fn forget(&mut self, name: &TargetName) {
        self.plans.remove(name);
    }

    /// The planned end of a backend's drain, if any.
    pub fn of(&self, name: &TargetName) -> Option<Until> {
        self.plans.get(name).copied()
    }

    /// All planned ends.
    pub fn all(&self) -> impl Iterator<Item = (&TargetName, &Until)> {
        self.plans.iter()
    }

    /// Records that these backends are removed.
    pub fn finish(&mut self, removed: &[Drained]) {
        for Drained { name, connection_count } in removed {
            self.plans.remove(name);
            match connection_count {
                0 => tracing::info!("drain: {} is removed: it has no connections", shown(name)),
                count => tracing::warn!(
                    "drain: {} is removed: its time is over; other backends get its connections, {count} \
                     in all",
                    shown(name)
                ),
            }
        }
    }

    /// Records that these backends could not be removed. The removal is retried as long as their
    /// drains last.
    pub fn fail(&mut self, due: &[Drained], error: &str, now: Instant) {
        for Drained { name, .. } in due {
            let again = RETRY_INTERVAL.as_secs();
            tracing::error!(
                "drain: {} can't be removed, which is tried again in {again} s: {error}",
                shown(name)
            );
        }
        self.due = Some(now + RETRY_INTERVAL);
    }

    /// Whether a check is due.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = !self.plans.is_empty() && self.due.is_none_or(|due| due <= now);
        if is_due {
            self.due = Some(now + LOOK_INTERVAL);
        }
        is_due
    }

    /// The backend, if its drain is over. Its last connection counts as ended only once all workers
    /// have stopped giving it new ones (`is_in_force`).
    fn drained(
        &self,
        name: TargetName,
        connection_count: u64,
        now: Instant,
        is_in_force: bool,
    ) -> Option<Drained> {
        let is_over = self.of(&name)?.is_over(now, is_in_force.then_some(connection_count));
        is_over.then_some(Drained { name, connection_count })
    }
}

fn shown(name: &TargetName) -> String {
    format!("{} of {}", name.address, name.service)
}

impl Publisher {
    /// Removes the backends whose drains are over: all at once, because each removal builds a
    /// service table.
    pub(super) fn end_drains(
        &mut self,
        is_in_force: bool,
        members: &mut Members,
        link: &ClusterLink,
    ) {
        let is_busy = !self.publication.may_build() || !self.publication.queue.is_empty();
        let now = Instant::now();
        if is_busy || !members.drains.is_due(now) {
            return;
        }
        // Before the answer is sent, workers may not have the weight that a drain has set.
        let is_answered = !self.publication.refresh.is_awaited();
        let remembers_all =
            link.node.as_ref().is_none_or(|node| node.is_ready && node.remembers_all(&self.config));
        let is_in_force = is_in_force && is_answered && remembers_all;
        let (table, summary) = (&self.table, self.summary());
        // A weight other than 0 means that the drain is just beginning.
        let drained = table.used_targets().filter(|(.., target)| target.weight == 0);
        let due = drained.filter_map(|(service, id, target)| {
            let name = TargetName::new(&table.all()[service as usize].name, target.address());
            let elsewhere = match &link.node {
                Some(node) => node.elsewhere.connections(&name),
                None => Some(0),
            };
            let count = summary.target(id).connections + elsewhere.unwrap_or(0);
            members.drains.drained(name, count, now, is_in_force && elsewhere.is_some())
        });
        let due: Vec<_> = due.collect();
        if due.is_empty() {
            return;
        }
        let names = due.iter().map(|drained| (drained.name.clone(), Removal::Rebalance));
        let input = self.input_without(names, members);
        self.publication.begin(input, AfterBuild::Drained(due));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Until = Until { end: None, is_empty: true };

    fn name(service: &str) -> TargetName {
        TargetName::new(service, "10.0.0.1".parse().unwrap())
    }

    #[test]
    fn a_backend_is_drained_once_its_time_is_over_or_all_workers_have_none_of_it() {
        let (mut drains, now) = (Drains::default(), Instant::now());
        let after = |s| now + Duration::from_secs(s);
        drains.plan(name("timed"), Until { end: Some(after(5)), is_empty: false }, now);
        drains.plan(name("empty"), EMPTY, now);
        let is_drained = |drains: &Drains, service, connection_count, (now, is_in_force)| {
            drains.drained(name(service), connection_count, now, is_in_force).is_some()
        };
        assert!(!is_drained(&drains, "timed", 0, (after(4), true)));
        assert!(is_drained(&drains, "timed", 7, (after(5), false)));
        assert!(!is_drained(&drains, "empty", 0, (after(9), false)), "one may be on its way");
        assert!(!is_drained(&drains, "empty", 1, (after(9), true)));
        assert!(is_drained(&drains, "empty", 0, (now, true)));
        assert!(!is_drained(&drains, "other", 0, (after(9), true)), "it is drained for good");
        drains.cancel(&name("empty"), "of a test");
        assert!(!is_drained(&drains, "empty", 0, (now, true)));
        drains.cancel(&name("timed"), "of a test");
        assert_eq!(drains.of(&name("timed")), None);
        assert!(!drains.is_due(after(99)));
    }

    #[test]
    fn a_removal_that_fails_is_tried_again_until_it_succeeds() {
        let (mut drains, now) = (Drains::default(), Instant::now());
        drains.plan(name("web"), EMPTY, now);
        assert!(drains.is_due(now) && !drains.is_due(now));
        let due = [drains.drained(name("web"), 0, now, true).unwrap()];
        drains.fail(&due, "of a test", now);
        assert!(!drains.is_due(now + RETRY_INTERVAL - Duration::from_millis(1)));
        assert!(drains.is_due(now + RETRY_INTERVAL));
        assert!(drains.drained(name("web"), 0, now, true).is_some());
        drains.finish(&due);
        assert!(!drains.is_due(now + 2 * RETRY_INTERVAL));
    }
}
