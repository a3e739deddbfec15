//! Answers to requests that change something.

use super::{counted, listed};
use crate::until::Ending;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

/// A change, and whether a restart undoes it.
#[derive(Debug, Deserialize, Serialize)]
pub struct Saved<A> {
    #[serde(flatten)]
    pub change: A,
    /// The reason why a restart undoes the change, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsaved: Option<String>,
}

/// The effect of a reload.
#[derive(Debug, Deserialize, Serialize)]
pub struct Effect {
    /// The differences to the configuration before, in words, or the first of them.
    pub changes: Vec<String>,
    /// The number of all differences.
    pub change_count: usize,
    /// Operators' changes that are still in force.
    pub kept: ChangeCounts,
    /// Operators' changes that were in force before.
    pub undone: ChangeCounts,
}

impl Effect {
    fn lines(&self) -> impl Iterator<Item = String> {
        let Self { changes, change_count, kept, undone } = self;
        let more = match change_count.saturating_sub(changes.len()) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let changed = (!changes.is_empty()).then(|| format!("changed: {}{more}", listed(changes)));
        let shown = |what: &str, counts: &ChangeCounts| {
            (*counts != ChangeCounts::default()).then(|| format!("{what}: {counts}"))
        };
        let kept = shown("operators' changes kept", kept);
        let undone = shown("operators' changes undone", undone);
        [changed, kept, undone].into_iter().flatten()
    }
}

/// Numbers of operators' changes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ChangeCounts {
    pub weights: usize,
    pub removed: usize,
    /// Drains with an end.
    pub drains: usize,
    pub blocks: usize,
    /// Whether the VIPs are withdrawn.
    pub withdrawn: bool,
}

impl Display for ChangeCounts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.weights, "weights"),
            (self.removed, "removed backends"),
            (self.drains, "drains that end"),
            (self.blocks, "blocks"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts = counts.map(|(count, what)| format!("{what}: {count}"));
        let withdrawn = self.withdrawn.then(|| "VIPs are withdrawn".to_owned());
        f.write_str(&listed(counts.chain(withdrawn)))
    }
}

/// A change. The first variant whose members are all there is read: one with more members stands before
/// another.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Change {
    /// `ctl drain`, in a number of services.
    Drained {
        changed: usize,
        weight: u32,
        #[serde(deserialize_with = "Option::deserialize")]
        draining: Option<Ending>,
    },
    /// `ctl weight`, in a number of services.
    Weighed { changed: usize, weight: u32 },
    /// `ctl remove`, from a number of services.
    Removed { removed: usize, flush: bool },
    /// `ctl block`.
    Blocked {
        prefix: String,
        #[serde(deserialize_with = "Option::deserialize")]
        for_s: Option<u64>,
    },
    /// `ctl unblock`.
    Unblocked { prefix: String },
    /// `ctl reload`.
    Reloaded {
        services: usize,
        backends: usize,
        #[serde(flatten, skip_serializing_if = "Option::is_none")]
        effect: Option<Effect>,
    },
    /// `ctl leave`.
    Leaving { withdrawn: Vec<IpAddr>, leaving: Ending, connections: u64 },
    /// `ctl withdraw`.
    Withdrawn { withdrawn: Vec<IpAddr> },
    /// `ctl announce`.
    Announced { ready: Vec<IpAddr> },
}

impl Change {
    /// The text, with the backend or prefix as the request has it.
    pub fn text(&self, named: &str) -> String {
        match self {
            Self::Drained { changed, draining, .. } => {
                let end = draining.as_ref().map(Ending::removal_text).unwrap_or_default();
                format!("{named} gets no new connections in {}{end}", counted(*changed, "service"))
            }
            Self::Weighed { changed, weight } => {
                format!("{named} has weight {weight} in {}", counted(*changed, "service"))
            }
            Self::Removed { removed, flush } => {
                let end = if *flush { ", and its connections end" } else { "" };
                format!("{named} is taken out of {}{end}", counted(*removed, "service"))
            }
            Self::Blocked { for_s: Some(seconds), .. } => {
                format!("{named} is blocked for {seconds} s")
            }
            Self::Blocked { for_s: None, .. } => {
                format!("{named} is blocked until it is unblocked")
            }
            Self::Unblocked { .. } => format!("{named} is no longer blocked"),
            Self::Reloaded { services, backends, effect } => {
                let services = counted(*services, "service");
                let text = format!("reloaded: {services} with {}", counted(*backends, "backend"));
                effect.iter().flat_map(Effect::lines).fold(text, |text, line| text + "\n" + &line)
            }
            Self::Leaving { withdrawn, leaving, connections } => {
                let (when, left) = (leaving.leave_text(), counted(*connections, "connection"));
                format!("withdrawn: {}\nthe program ends {when}: {left} now", listed(withdrawn))
            }
            Self::Withdrawn { withdrawn } => format!("withdrawn: {}", listed(withdrawn)),
            Self::Announced { ready } => format!("announced again: {}", listed(ready)),
        }
    }
}

impl Saved<Change> {
    /// The text of the change, with a warning if a restart undoes it.
    pub fn text(&self, named: &str) -> String {
        let text = self.change.text(named);
        let Some(why) = &self.unsaved else { return text };
        format!("{text}\nwarning: this is in force, but a restart of the node undoes it: {why}")
    }
}
