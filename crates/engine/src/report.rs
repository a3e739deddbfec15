//! The final report of a run, for people and for programs.

use crate::deployment::Deployment;
use crate::ledger::{Baseline, CoreEnd, NicLoss, Settled};
use crate::panic_origin::Panic;
use crate::placement::Placement;
use crate::wait::CoreTime;
use hotloop_stage::{Counters, Error};
use hotloop_watch::{CorePlaces, PlaceCounts, PlaceKind, Snapshot};
use serde::Serialize;
use std::collections::BTreeMap;

/// The account of a run, in packets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The deployment, in words.
    pub deployment: String,
    /// Received from sources.
    pub received: u64,
    /// Accepted by sinks.
    pub sent: u64,
    /// Made by stages.
    pub created: u64,
    /// Dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Left inside at the end, found by walking rings, bursts and stages.
    pub in_flight: u64,
    /// Sent from core to core.
    pub crossed: u64,
    /// Packets that came into a stage and neither left it, nor were dropped, nor are held there.
    pub unattributed: u64,
    /// Packets that left a stage without having come in or been created.
    pub uncreated: u64,
    /// Whether all counts agree: received + created = sent + dropped, at each stage too, nothing is
    /// left inside, and the devices counted the same.
    pub balanced: bool,
    /// Whether every mbuf of every pool is back, exactly once.
    pub pools_whole: bool,
    /// Packets that devices lost before the engine saw them; not in `received`.
    pub nic_loss: NicLoss,
    /// The devices' own counts.
    pub devices: DeviceTotals,
    /// Each place, summed over cores, in the order of a packet.
    pub stages: Vec<PlaceCounts>,
    /// Each core.
    pub cores: Vec<CoreReport>,
    /// Discrepancies and errors, in words. Empty if all is well.
    pub findings: Vec<String>,
    /// Notes on the placement of cores, and on devices that have gone.
    pub notes: Vec<String>,
}

/// The devices' own counts, in packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct DeviceTotals {
    /// Received; `None` if a source has no device that counts.
    pub received: Option<u64>,
    /// Sent; `None` if a sink has no device that counts.
    pub sent: Option<u64>,
    /// The part of `sent` that the devices accepted and then could not send.
    pub tx_failed: u64,
}

/// One core.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CoreReport {
    /// The core's name: in a pipeline, the name of the group and of the core in it.
    pub name: String,
    /// The core's group; 0 in run-to-completion.
    pub group: usize,
    /// The core's number in the group.
    pub index: usize,
    /// The lcore of the core's thread, if a driver registered one.
    pub lcore: Option<u32>,
    /// The CPU that the core was pinned to.
    pub cpu: Option<usize>,
    /// Packets that the core took from its source, or from the previous group.
    pub received: u64,
    /// Packets that the core sent to other cores.
    pub crossed: u64,
    /// Packets that the core's sinks accepted.
    pub sent: u64,
    /// The message of a stage's panic.
    pub panic: Option<String>,
    /// The time that the core's thread used; `None` if there was no thread.
    pub time: Option<CoreTime>,
}

/// The reason that a run failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The run did not start.
    Start(Error),
    /// A stage panicked; the packets inside are counted as `panicked`.
    Panicked(Box<Report>),
    /// The account is not whole.
    NotWhole(Box<Report>),
}

impl RunError {
    /// The report of the run, if there is one.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Start(_) => None,
            Self::Panicked(report) | Self::NotWhole(report) => Some(report),
        }
    }
}

impl std::error::Error for RunError {}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Start(error) => write!(f, "the engine did not start: {error}"),
            Self::Panicked(report) => {
                write!(f, "a stage panicked: {}", report.findings.join("; "))
            }
            Self::NotWhole(report) => {
                write!(f, "packets are not accounted for: {}", report.findings.join("; "))
            }
        }
    }
}

impl Report {
    /// Draws up the account. Every thread has been joined, every queue dropped.
    pub(crate) fn settle(
        deployment: Deployment,
        placement: &Placement,
        baseline: &Baseline,
        ends: Vec<CoreEnd>,
    ) -> Self {
        let settled = baseline.settle();
        let mut report = Self::summed(deployment, &ends);
        report.notes = placement.notes().to_vec();
        report.notes.extend_from_slice(&settled.notes);
        report.pools_whole = settled.pools_whole;
        report.nic_loss = settled.nic_loss;
        report.devices = DeviceTotals {
            received: settled.is_received_counted.then_some(settled.received),
            sent: settled.is_sent_counted.then_some(settled.sent),
            tx_failed: settled.tx_failed,
        };
        report.findings = report.imbalances();
        report.balanced = report.findings.is_empty();
        report.add_other_findings(settled, &ends);
        report
    }

    /// The account of a run that never began, because a signal came before: no packets, and whole.
    #[must_use]
    pub fn of_no_run() -> Self {
        Self {
            deployment: "none".to_owned(),
            balanced: true,
            pools_whole: true,
            devices: DeviceTotals { received: Some(0), sent: Some(0), tx_failed: 0 },
            notes: vec!["a signal came before the run began".to_owned()],
            ..Self::summed(Deployment::run_to_completion(1), &[])
        }
    }

    fn summed(deployment: Deployment, ends: &[CoreEnd]) -> Self {
        let now = Snapshot::of(deployment.to_string(), ends.iter().map(|end| &end.core));
        let mut stages: Vec<(usize, PlaceCounts)> = Vec::new();
        for end in ends {
            // A name occurs again if a stage is in a group twice: the first of a core is matched
            // with the first of the others.
            let mut first = 0;
            for place in &end.core.places {
                let is_same = |(group, stage): &(usize, PlaceCounts)| {
                    (*group, &stage.name) == (place.group, &place.name)
                };
                let found = stages[first..].iter().position(is_same);
                let at = found.map_or(stages.len(), |at| first + at);
                if at == stages.len() {
                    let name = place.name.clone();
                    stages.push((place.group, PlaceCounts { name, ..PlaceCounts::default() }));
                }
                stages[at].1.add(place);
                first = at + 1;
            }
        }
        let stages: Vec<_> = stages.into_iter().map(|(_, stage)| stage).collect();
        Self {
            deployment: now.deployment,
            received: now.received,
            sent: now.sent,
            created: now.created,
            dropped: now.dropped,
            in_flight: ends.iter().map(|end| end.in_flight as u64).sum(),
            crossed: stages.iter().map(|stage| stage.crossed).sum(),
            unattributed: stages.iter().map(|stage| stage.unattributed).sum(),
            uncreated: stages.iter().map(|stage| stage.uncreated).sum(),
            balanced: false,
            pools_whole: false,
            nic_loss: NicLoss::default(),
            devices: DeviceTotals::default(),
            stages,
            cores: ends.iter().map(CoreReport::of).collect(),
            findings: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The known part of the account of a run with cores that were not joined.
    pub(crate) fn unfinished(
        deployment: Deployment,
        cores: &[CorePlaces],
        finding: String,
    ) -> Self {
        let end = |core: &CorePlaces| CoreEnd {
            core: core.clone(),
            lcore: None,
            in_flight: 0,
            panic: None,
            time: None,
        };
        let ends: Vec<_> = cores.iter().map(end).collect();
        let mut report = Self::summed(deployment, &ends);
        let (entered, left) =
            (report.received + report.created, report.sent + report.dropped_sum());
        report.in_flight = entered.saturating_sub(left);
        report.nic_loss.imissed = None;
        report.findings = vec![finding];
        report
    }

    /// All packets dropped, whatever the reason.
    #[must_use]
    pub fn dropped_sum(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether the account adds up, every mbuf is back, and nothing else went wrong.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.balanced && self.pools_whole && self.findings.is_empty()
    }

    /// The report as one line of JSON.
    ///
    /// # Panics
    /// Never: every field can be written as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names and numbers can be written as JSON")
    }

    pub(crate) fn into_result(self) -> Result<Self, RunError> {
        if self.cores.iter().any(|core| core.panic.is_some()) {
            Err(RunError::Panicked(Box::new(self)))
        } else if self.is_whole() {
            Ok(self)
        } else {
            Err(RunError::NotWhole(Box::new(self)))
        }
    }

    fn imbalances(&self) -> Vec<String> {
        let mut found = Vec::new();
        let (entered, left) =
            (self.received + self.created, self.sent + self.dropped_sum() + self.in_flight);
        if entered != left {
            found.push(format!(
                "{} received + {} created is not {} sent + {} dropped + {} in flight",
                self.received,
                self.created,
                self.sent,
                self.dropped_sum(),
                self.in_flight
            ));
        }
        if self.in_flight != 0 {
            found.push(format!("packets left inside: {}", self.in_flight));
            let holding = self.stages.iter().filter(|stage| stage.held != 0);
            let text = |stage: &PlaceCounts| format!("{} still holds {}", stage.name, stage.held);
            found.extend(holding.map(text));
        }
        for stage in &self.stages {
            if stage.unattributed != 0 {
                found.push(format!("packets lost by {}: {}", stage.name, stage.unattributed));
            }
            if stage.uncreated != 0 {
                let text = "packets emitted but neither received nor created by";
                found.push(format!("{text} {}: {}", stage.name, stage.uncreated));
            }
        }
        let compare = |what: &str, ours: u64, devices: Option<u64>| {
            devices.filter(|&devices| devices != ours).map(|devices| {
                format!("packets {what} by the engine: {ours}, by its devices: {devices}")
            })
        };
        found.extend(compare("received", self.received, self.devices.received));
        found.extend(compare("sent", self.sent, self.devices.sent));
        found
    }

    fn add_other_findings(&mut self, settled: Settled, ends: &[CoreEnd]) {
        self.findings.extend(settled.findings);
        for (end, core) in ends.iter().zip(&self.cores) {
            if let Some(Panic { place, text }) = &end.panic {
                self.findings.push(format!("{place} on {} panicked: {text}", core.name));
            }
        }
    }
}

impl CoreReport {
    fn of(end: &CoreEnd) -> Self {
        let CorePlaces { ref name, group, index, cpu, ref places, .. } = end.core;
        let sum = |kind: PlaceKind, count: fn(&Counters) -> u64| -> u64 {
            let of_kind = places.iter().filter(|place| place.kind == kind);
            of_kind.map(|place| count(&place.counters)).sum()
        };
        Self {
            name: name.clone(),
            group,
            index,
            lcore: end.lcore,
            cpu,
            received: places.first().map_or(0, |place| place.counters.received.count()),
            crossed: sum(PlaceKind::Boundary, |counters| counters.crossed.count()),
            sent: sum(PlaceKind::Sink, |counters| counters.emitted.count()),
            panic: end.panic.as_ref().map(|panic| panic.text.clone()),
            time: end.time,
        }
    }
}
