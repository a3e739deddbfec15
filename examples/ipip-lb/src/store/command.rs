//! `ipip-lb cluster`: the operator's end of a store.

use super::apply::Apply;
use crate::config::Config;
use crate::failure::{BadInput, Failure};
use clap::{Args, Subcommand};
use hotloop_cluster::settings::StoreAddress;
use hotloop_cluster::store::etcd::{Bounds, Etcd};
use hotloop_cluster::store::layout;
use hotloop_cluster::store::nothing_in;
use hotloop_cluster::store::{StoreError, StoreErrorKind};
use hotloop_ops::print;
use std::path::PathBuf;

/// `ipip-lb cluster`.
#[derive(Args, Debug)]
pub struct Cluster {
    /// The command.
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// Commands for the configuration of a cluster.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Check a configuration, have all nodes prepare it, and put it in force.
    Apply(Apply),
    /// Print the configuration that is in force.
    Show(Show),
}

/// `ipip-lb cluster show`.
#[derive(Args, Debug)]
pub struct Show {
    /// The store.
    #[command(flatten)]
    pub place: Place,
}

/// The store: by its address, or by a node's file.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct Place {
    /// Its address: etcd://HOST:PORT, with more HOST:PORT after commas, and /PREFIX at its end.
    #[arg(long, value_name = "ADDRESS")]
    pub store: Option<StoreAddress>,
    /// The configuration file of a node: its cluster.store is the store, and the applied
    /// configuration is checked together with it.
    #[arg(long, value_name = "FILE")]
    pub node: Option<PathBuf>,
}

impl Cluster {
    /// Runs the command.
    ///
    /// # Errors
    /// Errors in the arguments or the configuration, and the store's errors.
    pub fn act(&self) -> Result<(), Failure> {
        match &self.command {
            ClusterCommand::Apply(apply) => apply.act(),
            ClusterCommand::Show(show) => show.act(),
        }
    }
}

impl Show {
    fn act(&self) -> Result<(), Failure> {
        let (address, _) = self.place.found()?;
        let etcd = Etcd::new(address, Bounds::default());
        let stored = layout::read(&etcd)?.stored.ok_or_else(|| nothing_in(etcd.address()))?;
        tracing::info!("{}: revision {}", stored.name, stored.revision);
        say(&stored.text)
    }
}

impl Place {
    /// The store's address, and the name and text of the node's file, if there is one.
    pub(super) fn found(&self) -> Result<(StoreAddress, Option<(String, String)>), BadInput> {
        let Some(path) = &self.node else {
            let none = || BadInput::new("--store: missing; write --store etcd://HOST:PORT");
            return Ok((self.store.clone().ok_or_else(none)?, None));
        };
        let (file, text) = (path.display().to_string(), Config::text(path)?);
        let Some(store) = Config::store_of(&file, &text)? else {
            let problem = "has no cluster.store; write it there, or give --store";
            return Err(BadInput::new(format!("{file}: --node: {problem}")));
        };
        Ok((store.address, Some((file, text))))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::Unreachable => BadInput::new(error.to_string()).into(),
            _ => Self::Run(error.to_string()),
        }
    }
}

pub(super) fn say(text: &str) -> Result<(), Failure> {
    print(text).map_err(|error| Failure::Run(format!("standard output: {error}")))
}
