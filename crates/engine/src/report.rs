//! What a run reports in the end, for people and for programs.

use crate::deployment::Deployment;
use crate::ledger::{Baseline, CoreEnd, Settled};
use crate::placement::Placement;
use hotloop_stage::{Counters, DeviceCounters, Error};
use serde::Serialize;
use std::collections::BTreeMap;

/// The account of a run, in packets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// How it was deployed.
    pub deployment: String,
    /// Received from sources.
    pub received: u64,
    /// Taken over by sinks.
    pub sent: u64,
    /// Made by stages.
    pub created: u64,
    /// Dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Left inside at the end, found by walking rings, bursts and stages.
    pub in_flight: u64,
    /// Handed from core to core.
    pub crossed: u64,
    /// Came into a stage and neither left it, nor were dropped, nor are held there.
    pub unattributed: u64,
    /// Left a stage without having come in or having been created.
    pub uncreated: u64,
    /// Whether everything adds up: received + created = sent + dropped, at each stage too, nothing
    /// is left inside, and the devices counted the same.
    pub balanced: bool,
    /// Whether every mbuf of every pool is back, once.
    pub pools_whole: bool,
    /// What devices lost before the engine saw it; not in `received`.
    pub nic_loss: NicLoss,
    /// What the devices counted themselves.
    pub devices: DeviceTotals,
    /// Each stage, summed over cores, in a packet's order.
    pub stages: Vec<StageReport>,
    /// Each core.
    pub workers: Vec<WorkerReport>,
    /// What does not add up, and what went wrong, in words. Empty when all is well.
    pub findings: Vec<String>,
    /// What is worth knowing about where the cores run, and of devices that have gone.
    pub notes: Vec<String>,
}

/// Packets that devices lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct NicLoss {
    /// No RX descriptor was free; nothing where one of the devices does not know.
    pub imissed: Option<u64>,
    /// No mbuf was free.
    pub rx_nombuf: u64,
    /// They arrived on queues that nobody claimed.
    pub rx_unclaimed: u64,
    /// The lengths that the driver wrote do not agree.
    pub rx_malformed: u64,
}

impl Default for NicLoss {
    fn default() -> Self {
        Self { imissed: Some(0), rx_nombuf: 0, rx_unclaimed: 0, rx_malformed: 0 }
    }
}

impl NicLoss {
    /// Adds what a device lost after it had counted `before`.
    pub(crate) fn add(&mut self, now: &DeviceCounters, before: &DeviceCounters) {
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let missed = now.imissed.zip(before.imissed).map(|(now, before)| since(now, before));
        self.imissed = self.imissed.zip(missed).map(|(sum, missed)| sum + missed);
        self.rx_nombuf += since(now.rx_nombuf, before.rx_nombuf);
        self.rx_unclaimed += since(now.rx_unclaimed, before.rx_unclaimed);
        self.rx_malformed += since(now.rx_malformed, before.rx_malformed);
    }
}

/// What devices counted themselves, in packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct DeviceTotals {
    /// Received; nothing where a source has no device that counts.
    pub received: Option<u64>,
    /// Sent; nothing where a sink has no device that counts.
    pub sent: Option<u64>,
    /// Of those sent, the ones that the devices took and then could not send.
    pub tx_failed: u64,
}

/// One stage, summed over cores.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct StageReport {
    /// Its name.
    pub name: String,
    /// Packets it took.
    pub received: u64,
    /// Packets it gave on.
    pub emitted: u64,
    /// Packets it made.
    pub created: u64,
    /// Packets it dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets it still held when it last counted.
    pub held: u64,
    /// Packets it lost.
    pub unattributed: u64,
    /// Packets it gave on without having had them.
    pub uncreated: u64,
}

/// One core.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct WorkerReport {
    /// What it did: `run-to-completion`, `dispatcher` or `worker`.
    pub role: String,
    /// Its number among those of its role.
    pub index: usize,
    /// The lcore its thread was registered as, where a driver did.
    pub lcore: Option<u32>,
    /// The CPU it was pinned to.
    pub cpu: Option<usize>,
    /// Packets it took from its source, or from dispatchers.
    pub received: u64,
    /// Packets its sinks took over, or its rings to workers.
    pub sent: u64,
    /// What its stage panicked with.
    pub panic: Option<String>,
}

/// Why a run failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// It did not start.
    Start(Error),
    /// A stage panicked; what was inside is counted as `panicked`.
    Panicked(Box<Report>),
    /// The account is not whole.
    NotWhole(Box<Report>),
}

impl RunError {
    /// The report of the run, where there was one.
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

    fn summed(deployment: Deployment, ends: &[CoreEnd]) -> Self {
        let mut report = Self {
            deployment: deployment.to_string(),
            received: ends.iter().map(|end| end.tally.polled).sum(),
            sent: ends.iter().map(|end| end.tally.transmitted).sum(),
            created: 0,
            dropped: BTreeMap::new(),
            in_flight: ends.iter().map(|end| end.in_flight as u64).sum(),
            crossed: ends.iter().map(|end| end.tally.crossed).sum(),
            unattributed: 0,
            uncreated: 0,
            balanced: false,
            pools_whole: false,
            nic_loss: NicLoss::default(),
            devices: DeviceTotals::default(),
            stages: Vec::new(),
            workers: ends.iter().map(WorkerReport::of).collect(),
            findings: Vec::new(),
            notes: Vec::new(),
        };
        for end in ends {
            // Names repeat where a stage stands twice in a graph: the first of a core is matched
            // with the first of the others.
            let mut first = 0;
            for line in &end.lines {
                let found = report.stages[first..].iter().position(|stage| stage.name == line.name);
                let place = found.map_or(report.stages.len(), |place| first + place);
                if place == report.stages.len() {
                    let name = line.name.clone();
                    report.stages.push(StageReport { name, ..StageReport::default() });
                }
                report.stages[place].add(&line.counters);
                first = place + 1;
            }
        }
        for stage in &report.stages {
            report.created += stage.created;
            report.unattributed += stage.unattributed;
            report.uncreated += stage.uncreated;
            stage.add_drops_to(&mut report.dropped);
        }
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
        to_json(self)
    }

    pub(crate) fn into_result(self) -> Result<Self, RunError> {
        if self.workers.iter().any(|worker| worker.panic.is_some()) {
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
            found.push(format!("{} packets were left inside", self.in_flight));
            let holding = self.stages.iter().filter(|stage| stage.held != 0);
            let text = |stage: &StageReport| format!("{} still holds {}", stage.name, stage.held);
            found.extend(holding.map(text));
        }
        for stage in &self.stages {
            if stage.unattributed != 0 {
                found.push(format!("{} lost {} packets", stage.name, stage.unattributed));
            }
            if stage.uncreated != 0 {
                let text = "gave on packets that it had neither received nor created:";
                found.push(format!("{} {text} {}", stage.name, stage.uncreated));
            }
        }
        let compare = |what: &str, ours: u64, devices: Option<u64>| {
            devices.filter(|&devices| devices != ours).map(|devices| {
                format!("the engine {what} {ours} packets, its devices say {devices}")
            })
        };
        found.extend(compare("received", self.received, self.devices.received));
        found.extend(compare("sent", self.sent, self.devices.sent));
        found
    }

    fn add_other_findings(&mut self, settled: Settled, ends: &[CoreEnd]) {
        self.findings.extend(settled.findings);
        for end in ends {
            if let Some(panic) = &end.panic {
                let (role, index) = (end.role, end.index);
                let finding = format!("{} on {role} {index} panicked: {}", panic.place, panic.text);
                self.findings.push(finding);
            }
        }
    }
}

impl WorkerReport {
    fn of(end: &CoreEnd) -> Self {
        Self {
            role: end.role.to_string(),
            index: end.index,
            lcore: end.lcore,
            cpu: end.cpu,
            received: end.tally.received,
            sent: end.tally.sent,
            panic: end.panic.as_ref().map(|panic| panic.text.clone()),
        }
    }
}

impl StageReport {
    /// What one place has counted up to now.
    pub(crate) fn of(name: &str, counters: &Counters) -> Self {
        let mut report = Self { name: name.to_owned(), ..Self::default() };
        report.add(counters);
        report
    }

    /// Adds its drops to those of others.
    pub(crate) fn add_drops_to(&self, dropped: &mut BTreeMap<String, u64>) {
        for (reason, count) in &self.dropped {
            *dropped.entry(reason.clone()).or_default() += count;
        }
    }

    fn add(&mut self, counters: &Counters) {
        self.received += counters.received.count();
        self.emitted += counters.emitted.count();
        self.created += counters.created.count();
        self.held += counters.held.count();
        self.unattributed += counters.unattributed.count();
        self.uncreated += counters.uncreated.count();
        let panicked = [("panicked", counters.panicked.count())];
        for (reason, count) in counters.dropped().chain(panicked) {
            if count > 0 {
                *self.dropped.entry(reason.to_owned()).or_default() += count;
            }
        }
    }
}

/// One line of JSON, of names and numbers.
pub(crate) fn to_json(account: &impl Serialize) -> String {
    serde_json::to_string(account).expect("names and numbers can be written as JSON")
}
