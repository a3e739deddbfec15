//! Answers to requests that change something.

use super::{counted, listed};
use crate::until::Ending;
use serde::{Deserialize, Serialize};
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
    Reloaded { services: usize, backends: usize },
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
            Self::Reloaded { services, backends } => {
                let services = counted(*services, "service");
                format!("reloaded: {services} with {}", counted(*backends, "backend"))
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
