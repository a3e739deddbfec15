//! `ipip-lb cluster apply`.

use super::command::{Place, say};
use crate::check::Understood;
use crate::config::Config;
use crate::failure::{BadInput, Failure};
use clap::Args;
use hotloop_cluster::store::etcd::{Bounds, Etcd};
use hotloop_cluster::store::layout::{self, Part};
use hotloop_cluster::store::phases::Outcome;
use hotloop_cluster::store::{
    Carried, Open, PROPOSAL_S, Proposal, StoreError, StoreErrorKind, changes,
};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time before the nodes without an answer are printed.
const SILENT: Duration = Duration::from_secs(1);

/// `ipip-lb cluster apply`.
#[derive(Args, Debug)]
pub struct Apply {
    /// The configuration that all nodes share, a TOML file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// The store.
    #[command(flatten)]
    pub place: Place,
    /// Refuse unless this revision is in force; 0 means none.
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(i64).range(0..))]
    pub replaces: Option<i64>,
    /// How long the nodes may take to prepare it, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub within: u32,
    /// Put it in force after that time even if some nodes have not prepared it, or are absent.
    /// Those nodes withdraw any VIPs that they announce before they switch; connections may break.
    #[arg(long)]
    pub force: bool,
}

impl Apply {
    pub(super) fn act(&self) -> Result<(), Failure> {
        let (file, text) = (self.config.display().to_string(), Config::text(&self.config)?);
        let (access, node) = self.place.found()?;
        let config = match &node {
            Some((node, own)) => Config::parse_shared((node, own), (&file, &text)),
            None => Config::parse_shared_alone((&file, &text)),
        };
        let config = config.map_err(BadInput::from)?;
        let parts =
            layout::split(&text).map_err(|problem| BadInput::new(format!("{file}:{problem}")))?;
        for note in Understood(&config).notes() {
            tracing::warn!("{note}");
        }
        let etcd = Etcd::new(access, Bounds::default())?;
        let in_force = layout::revision(&etcd)?;
        let replaces = self.replaces.unwrap_or(in_force);
        if replaces != in_force {
            return Err(conflict(&etcd, replaces));
        }
        let current = match layout::read(&etcd) {
            Ok(reading) => reading.stored,
            // Even an invalid configuration may be replaced.
            Err(error) if error.kind() == StoreErrorKind::Content => None,
            Err(error) => return Err(error.into()),
        };
        if current.is_some_and(|stored| (stored.revision, &stored.text) == (in_force, &text)) {
            return say(&format!("revision {in_force} has the same text: nothing has changed\n"));
        }
        // Nodes wait for the first configuration, and are there once they have it.
        let named = node.as_ref().map_or_else(Vec::new, |_| nodes_of(&config));
        let expected = if in_force == 0 { Vec::new() } else { named };
        let carried = self.carry_out(&etcd, replaces, &parts, expected)?;
        let revision = self.in_force(&etcd, replaces, carried)?;
        let services = config.services.len();
        say(&format!("revision {revision} replaces revision {replaces}: {services} services\n"))
    }

    fn carry_out(
        &self,
        etcd: &Etcd,
        replaces: i64,
        parts: &[Part<'_>],
        expected: Vec<String>,
    ) -> Result<Carried, StoreError> {
        let within = Duration::from_secs(self.within.into());
        let proposal = Proposal { parts, replaces, expected, is_forced: self.force, within };
        let (begin, mut said) = (Instant::now(), Vec::new());
        proposal.carry_out(etcd, &mut |open| {
            if begin.elapsed() >= SILENT && !open.is_empty() && said != open {
                said = open.to_vec();
                tracing::info!(
                    "waiting up to {} s for nodes that have not prepared it: {} (where this is \
                     interrupted, the proposal ends by itself within {PROPOSAL_S} s)",
                    self.within,
                    listed(open)
                );
            }
        })
    }

    /// The revision in force now, or the reason that it isn't the expected one.
    fn in_force(
        &self,
        etcd: &Etcd,
        replaces: i64,
        Carried { outcome, open }: Carried,
    ) -> Result<i64, Failure> {
        let address = etcd.address();
        let not_changed = |problem: String| Failure::Run(format!("{address}: {problem}"));
        Err(match outcome {
            Outcome::Committed(revision) => {
                if !open.is_empty() {
                    tracing::warn!(
                        "nodes that have not prepared it withdraw their VIPs before they go over, where \
                         they announce any, and connections may break: {}",
                        listed(&open)
                    );
                }
                return Ok(revision);
            }
            Outcome::Conflict(_) => conflict(etcd, replaces),
            Outcome::Busy => not_changed(format!(
                "another change is being prepared: try again; one that was interrupted ends \
                 within {PROPOSAL_S} s"
            )),
            Outcome::Absent(nodes) => not_changed(format!(
                "nothing has changed: nodes that should be there are not: {}; start them, or leave them \
                 out with --force",
                nodes.join(", ")
            )),
            Outcome::Refused(node, why) => not_changed(format!(
                "nothing has changed: node {node} refuses it: {why}"
            )),
            Outcome::Unanswered(nodes) => not_changed(format!(
                "nothing has changed: no answer within {} s from {}; look at their logs, stop those that \
                 hang, give them longer by --within, or leave them out with --force",
                self.within,
                nodes.join(", ")
            )),
            Outcome::Lost => not_changed(
                "the proposal has ended before it was put in force, as the store did not hear of it in \
                 time, or somebody deleted it: try again"
                    .to_owned(),
            ),
        })
    }
}

/// The node of this configuration, and its peers.
fn nodes_of(config: &Config) -> Vec<String> {
    let own = config.store.iter().map(|store| store.node.clone());
    let peers = config.cluster.iter().flat_map(|cluster| &cluster.peers);
    own.chain(peers.map(|peer| peer.name.clone())).collect()
}

fn listed(open: &[Open]) -> String {
    let text = |(name, refusal): &Open| match refusal {
        Some(why) => format!("{name} (refuses it: {why})"),
        None => name.clone(),
    };
    open.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Another change was written: the error shows the difference.
fn conflict(etcd: &Etcd, replaces: i64) -> Failure {
    match changes(etcd, replaces) {
        Ok((changes, revision)) => {
            let address = etcd.address();
            say(&changes).err().unwrap_or_else(|| {
                Failure::Run(format!(
                    "{address}: revision {revision} is in force, not {replaces}: nothing was \
                     written; take over what has changed, and apply with --replaces {revision}"
                ))
            })
        }
        Err(error) => error.into(),
    }
}
