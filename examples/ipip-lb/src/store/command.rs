//! `ipip-lb cluster`: the operator's end of a store.

use super::apply::Apply;
use crate::config::Config;
use crate::failure::{BadInput, Failure};
use clap::{Args, Subcommand};
use hotloop_cluster::settings::{StoreAccess, StoreAddress, StoreTls, StoreUser};
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
pub struct Place {
    /// The address or the file.
    #[command(flatten)]
    pub named: Named,
    /// The files for TLS to the address.
    #[command(flatten)]
    pub files: Box<StoreFiles>,
}

/// The address of a store, or the file that names it.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct Named {
    /// Its address: etcd://HOST:PORT, with more HOST:PORT after commas, and /PREFIX at its end.
    #[arg(long, value_name = "ADDRESS")]
    pub store: Option<StoreAddress>,
    /// The configuration file of a node: its cluster.store is the store, with TLS and the user as
    /// there, and the applied configuration is checked together with it.
    #[arg(long, value_name = "FILE")]
    pub node: Option<PathBuf>,
}

/// TLS to the store at `--store`; each file as in `[cluster]`.
#[derive(Args, Debug)]
pub struct StoreFiles {
    /// The authorities that sign the store's certificates, as cluster.store_authority.
    #[arg(long, value_name = "FILE", requires = "store")]
    pub store_authority: Option<PathBuf>,
    /// A certificate to show to the store, as cluster.store_certificate.
    #[arg(long, value_name = "FILE", requires = "store_authority", requires = "store_key")]
    pub store_certificate: Option<PathBuf>,
    /// The certificate's private key, as cluster.store_key.
    #[arg(long, value_name = "FILE", requires = "store_certificate")]
    pub store_key: Option<PathBuf>,
    /// A user of the store, as cluster.store_user.
    #[arg(
        long,
        value_name = "NAME",
        requires = "store_authority",
        requires = "store_password_file"
    )]
    pub store_user: Option<String>,
    /// The file with the user's password, as cluster.store_password_file.
    #[arg(long, value_name = "FILE", requires = "store_user")]
    pub store_password_file: Option<PathBuf>,
}

impl StoreFiles {
    fn tls(&self) -> Option<StoreTls> {
        let authority = self.store_authority.clone()?;
        let certificate = self.store_certificate.clone().zip(self.store_key.clone());
        let user = self.store_user.clone().zip(self.store_password_file.clone());
        let user = user.map(|(name, password_file)| StoreUser { name, password_file });
        Some(StoreTls { authority, certificate, user })
    }
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
        let (access, _) = self.place.found()?;
        let etcd = Etcd::new(access, Bounds::default())?;
        let stored = layout::read(&etcd)?.stored.ok_or_else(|| nothing_in(etcd.address()))?;
        tracing::info!("{}: revision {}", stored.name, stored.revision);
        say(&stored.text)
    }
}

impl Place {
    /// The way to the store, and the name and text of the node's file, if there is one.
    pub(super) fn found(&self) -> Result<(StoreAccess, Option<(String, String)>), BadInput> {
        let Some(path) = &self.named.node else {
            let none = || BadInput::new("--store: missing; write --store etcd://HOST:PORT");
            let address = self.named.store.clone().ok_or_else(none)?;
            return Ok((StoreAccess { address, tls: self.files.tls() }, None));
        };
        let (file, text) = (path.display().to_string(), Config::text(path)?);
        let Some(store) = Config::store_of(&file, &text)? else {
            let problem = "has no cluster.store; write it there, or give --store";
            return Err(BadInput::new(format!("{file}: --node: {problem}")));
        };
        Ok((store.access, Some((file, text))))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error.kind() {
            StoreErrorKind::Unreachable | StoreErrorKind::Access => {
                BadInput::new(error.to_string()).into()
            }
            _ => Self::Run(error.to_string()),
        }
    }
}

pub(super) fn say(text: &str) -> Result<(), Failure> {
    print(text).map_err(|error| Failure::Run(format!("standard output: {error}")))
}
