//! `ipip-lb cluster`: the operator's end of a store.

use super::difference::difference;
use super::error::{StoreError, StoreErrorKind};
use super::etcd::{Bounds, Etcd};
use super::layout::{self, Stored};
use crate::check::Understood;
use crate::config::{Config, StoreAddress};
use crate::failure::{BadInput, Failure};
use clap::{Args, Subcommand};
use hotloop_ops::print;
use std::path::PathBuf;

/// `ipip-lb cluster`.
#[derive(Args, Debug)]
pub struct Cluster {
    /// What to do.
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// What can be done with the configuration of a cluster.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Check a configuration and write it to the store, from which all nodes take it.
    Apply(Apply),
    /// Print the configuration that is in force.
    Show(Show),
}

/// `ipip-lb cluster apply`.
#[derive(Args, Debug)]
pub struct Apply {
    /// The configuration that all nodes share, a TOML file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Which store.
    #[command(flatten)]
    pub place: Place,
    /// Refuse where another revision than this is in force; 0 is none.
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(i64).range(0..))]
    pub replaces: Option<i64>,
}

/// `ipip-lb cluster show`.
#[derive(Args, Debug)]
pub struct Show {
    /// Which store.
    #[command(flatten)]
    pub place: Place,
}

/// Which store: one of the two says it.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct Place {
    /// Its address: etcd://HOST:PORT, with more HOST:PORT after commas, and /PREFIX at its end.
    #[arg(long, value_name = "ADDRESS")]
    pub store: Option<StoreAddress>,
    /// The configuration file of a node: its cluster.store is the store, and what is applied is checked
    /// together with it.
    #[arg(long, value_name = "FILE")]
    pub node: Option<PathBuf>,
}

impl Cluster {
    /// Does it.
    ///
    /// # Errors
    /// Whatever is wrong with what was given, and what the store says.
    pub fn act(&self) -> Result<(), Failure> {
        match &self.command {
            ClusterCommand::Apply(apply) => apply.act(),
            ClusterCommand::Show(show) => show.act(),
        }
    }
}

impl Apply {
    fn act(&self) -> Result<(), Failure> {
        let (file, text) = (self.config.display().to_string(), Config::text(&self.config)?);
        let (address, node) = self.place.found()?;
        let config = match &node {
            Some((node, own)) => Config::parse_shared((node, own), (&file, &text)),
            None => Config::parse_shared_alone((&file, &text)),
        };
        let config = config.map_err(BadInput::from)?;
        let parts = layout::split(&text).map_err(|it| BadInput::new(format!("{file}:{it}")))?;
        for note in Understood(&config).notes() {
            tracing::warn!("{note}");
        }
        let etcd = Etcd::new(address, Bounds::default());
        let in_force = layout::revision(&etcd)?;
        let replaces = self.replaces.unwrap_or(in_force);
        if replaces != in_force {
            return Err(conflict(&etcd, replaces));
        }
        let current = match layout::read(&etcd) {
            Ok(reading) => reading.stored,
            // Whatever it is, it is to be replaced.
            Err(error) if error.kind() == StoreErrorKind::Content => None,
            Err(error) => return Err(error.into()),
        };
        if current.is_some_and(|it| (it.revision, &it.text) == (in_force, &text)) {
            return say(&format!("revision {in_force} has the same text: nothing has changed\n"));
        }
        let Some(revision) = layout::write(&etcd, replaces, &parts)? else {
            return Err(conflict(&etcd, replaces));
        };
        let services = config.services.len();
        say(&format!("revision {revision} replaces revision {replaces}: {services} services\n"))
    }
}

/// Somebody else has written: what has changed is printed.
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

/// What has changed from one revision to that in force, and which that is.
fn changes(etcd: &Etcd, from: i64) -> Result<(String, i64), StoreError> {
    let of =
        |stored: Option<Stored>| stored.map_or((0, String::new()), |it| (it.revision, it.text));
    let (revision, new) = of(layout::read(etcd)?.stored);
    let new_name = format!("revision {revision}");
    let old = match from {
        0 => Ok(String::new()),
        from => layout::read_at(etcd, from).map(|it| of(it.stored).1),
    };
    let changes = match old {
        Ok(old) => difference((&format!("revision {from}"), &old), (&new_name, &new)),
        // It was compacted, or never was.
        Err(_) => {
            format!("revision {from} is not kept; `ipip-lb cluster show` prints {revision}\n")
        }
    };
    Ok((changes, revision))
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

/// That a store has no configuration.
pub(super) fn nothing_in(address: &StoreAddress) -> StoreError {
    let problem = "has no configuration; write one by `ipip-lb cluster apply`";
    StoreError::new(StoreErrorKind::Content, address, problem)
}

impl Place {
    /// The store's address, and the name and text of the node's file, where there is one.
    fn found(&self) -> Result<(StoreAddress, Option<(String, String)>), BadInput> {
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

fn say(text: &str) -> Result<(), Failure> {
    print(text).map_err(|error| Failure::Run(format!("standard output: {error}")))
}
