//! Building the service table of a change on a thread: the second step of a
//! [publication](super::publication).
//!
//! Part of [`Publisher`]; reads [`Members`]. One change is built at a time, in order of arrival;
//! consecutive changes of weights are built together. The builder of the table in use stays
//! unchanged, so that a table that never comes into use leaves the slots of its targets alone.

use super::drains::Drained;
use super::members::Members;
use super::proposal::Proposal;
use super::publication::{Stage, TableVersion};
use super::publisher::Publisher;
use super::references::ReferenceSpecs;
use super::reload::{LoadedConfig, ReloadOrigin};
use crate::answer::Change;
use crate::config::{Config, Port};
use crate::overrides::Overrides;
use crate::request;
use crate::until::Until;
use hotloop_balancer::services::{Builder, Removal, RemovedTarget, ServiceTable, TargetName};
use hotloop_balancer::spec::Backend;
use hotloop_cluster::store::layout::Stored;
use hotloop_cluster::sync::Tls;
use hotloop_health::Probed;
use hotloop_ops::Answerer;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// A change that needs a new service table.
#[derive(Debug)]
pub enum PendingChange {
    /// A configuration that was read.
    Configuration(LoadedConfig, Vec<ReloadOrigin>),
    /// `ctl remove`.
    Removal(request::Backend, Removal, Answerer),
    /// `ctl drain` or `ctl weight`.
    Weights(WeightChange),
    /// A configuration that all nodes must prepare.
    Proposal(LoadedConfig),
    /// Other reference tables.
    References(ReferenceSpecs),
}

/// A new weight for a backend, and the consequences.
#[derive(Debug)]
pub struct WeightChange {
    pub names: Vec<TargetName>,
    pub weight: u32,
    /// The end of the drain after which the backend is removed, if any, and the drain's beginning.
    pub until: Option<(Until, Instant)>,
    /// The reason for ending an earlier drain.
    pub why: &'static str,
    pub answerer: Answerer,
    pub answer: Value,
}

/// The rest of a change, once its service table is built and prepared.
#[derive(Debug)]
pub enum AfterBuild {
    /// Switch over to the configuration, and answer. With the store's part of the configuration,
    /// and new TLS settings for peers if they have changed.
    Configuration(Option<Arc<Stored>>, Option<Tls>, Vec<ReloadOrigin>),
    /// Remember the removed backend, and answer.
    Removal(Removed, Answerer),
    /// Remember these removed backends, whose drains are over.
    Drained(Vec<Drained>),
    /// Remember the weights, and answer.
    Weights(Vec<WeightChange>),
    /// Wait until all nodes adopt the configuration. With the store's part of it.
    Proposal(Option<Arc<Stored>>),
    /// Remember the reference tables.
    References(ReferenceSpecs),
}

/// The backend that `ctl remove` takes out of its services, and the answer.
#[derive(Debug)]
pub struct Removed {
    pub names: Vec<(TargetName, Removal)>,
    pub answer: Value,
}

/// The input for a new service table.
#[derive(Debug)]
pub struct BuildInput {
    pub config: Arc<Config>,
    pub overrides: Arc<Overrides>,
    /// Whether all workers use the last service table.
    pub is_settled: bool,
    /// The configuration in force, if `config` is a new one.
    pub old: Option<Arc<Config>>,
    /// A table with the same services and backends, if only weights or reference tables change.
    pub like: Option<Arc<ServiceTable>>,
    /// The reference tables; `None` for those of `like`.
    pub references: Option<ReferenceSpecs>,
    /// The builder of the table in use.
    pub builder: Arc<Builder>,
}

/// A new service table.
#[derive(Debug)]
pub struct Built {
    pub version: TableVersion,
    /// The builder of the next table, if this one comes into use.
    pub builder: Arc<Builder>,
    pub removed: Vec<RemovedTarget>,
    /// The differences to the configuration in force, in words.
    pub differences: Vec<String>,
    /// The backends to probe from now on.
    pub probed: Vec<Probed>,
}

/// The job of the thread.
pub fn build(input: BuildInput) -> Result<Built, String> {
    let BuildInput { config, overrides, is_settled, old, like, references, builder } = input;
    if let Some(table) = like {
        let mut version = TableVersion { config, overrides, table }.refreshed(builder.maglevs());
        if let Some(references) = references {
            let table = (*version.table).clone();
            version.table = Arc::new(references.attach(table, &builder, &version.config)?);
        }
        let (removed, differences, probed) = (Vec::new(), Vec::new(), Vec::new());
        return Ok(Built { version, builder, removed, differences, probed });
    }
    let mut builder = (*builder).clone();
    let mut differences = Vec::new();
    if let Some(old) = old {
        check_same_run(&old, &config)?;
        differences = config.differences_to(&old);
    }
    if is_settled {
        // Control has taken the counts of the removed targets.
        builder.settle();
    }
    let table = builder
        .build(&config.spec(), &overrides.standing(&config))
        .map_err(|error| error.to_string())?;
    let table = references.unwrap_or_default().attach(table, &builder, &config)?;
    let (removed, probed) = (builder.take_removed(), probed(&config));
    let version = TableVersion { config, overrides, table: Arc::new(table) };
    Ok(Built { version, builder: Arc::new(builder), removed, differences, probed })
}

/// The backends to probe, including those of weight 0.
pub fn probed(config: &Config) -> Vec<Probed> {
    let mut probed = Vec::new();
    for service in &config.services {
        for health in config.ways_of(&service.name) {
            let of =
                |backend: &Backend| Probed { address: backend.address, health: health.clone() };
            probed.extend(service.backends.iter().map(of));
        }
    }
    probed
}

/// Checks that the configurations differ in nothing that is fixed for a whole run.
fn check_same_run(old: &Config, new: &Config) -> Result<(), String> {
    let fixed = |port: &Port| Port { device_line: 0, ..port.clone() };
    let same_ports = old.ports.iter().map(fixed).eq(new.ports.iter().map(fixed));
    let what = if old.engine != new.engine {
        "[engine]"
    } else if !same_ports {
        "[[port]]"
    } else if old.announce != new.announce {
        "[announce]"
    } else if (&old.cluster, &old.store) != (&new.cluster, &new.store) {
        "[cluster]"
    } else if old.operator_file != new.operator_file {
        "balancer.operator_file"
    } else if old.balancer.connections_max != new.balancer.connections_max {
        "balancer.connections_max"
    } else if old.balancer.hash_key != new.balancer.hash_key {
        "balancer.hash_key"
    } else if old.balancer.probe_sources.is_empty() != new.balancer.probe_sources.is_empty() {
        "whether there is a health.probe_source"
    } else {
        return Ok(());
    };
    Err(format!("{what} can't change while the balancer runs: restart it, or change that back"))
}

impl Publisher {
    /// Takes the service table that was built. If its build failed, nothing has changed.
    pub(super) fn take_built(&mut self, members: &mut Members) -> Option<(Built, AfterBuild)> {
        let built = self.publication.builder.take()?;
        let stage = std::mem::replace(&mut self.publication.stage, Stage::Idle);
        let Stage::Building(Some(after)) = stage else { return None };
        let error = match built {
            Ok(Ok(built)) => return Some((built, after)),
            Ok(Err(error)) | Err(error) => error,
        };
        match after {
            AfterBuild::Proposal(_) => self.publication.proposal = Proposal::Refused(error),
            AfterBuild::Weights(all) => {
                for change in all {
                    change.answerer.send(Err(error.clone()));
                }
            }
            AfterBuild::Configuration(_, _, origins) => self.refuse(origins, &error),
            AfterBuild::References(_) => tracing::error!("{error}"),
            AfterBuild::Removal(_, answerer) => answerer.send(Err(error)),
            AfterBuild::Drained(drained) => members.drains.fail(&drained, &error, Instant::now()),
        }
        None
    }

    /// Begins to build the next valid change, unless one is under way.
    pub(super) fn build_next(&mut self, members: &Members) {
        while self.publication.may_build()
            && let Some(change) = self.publication.queue.pop_front()
        {
            let (input, after) = match change {
                PendingChange::Configuration(LoadedConfig { config, stored, tls }, origins) => {
                    let is_reset = origins.iter().any(ReloadOrigin::is_reset);
                    (
                        self.input_of(config, members, is_reset),
                        AfterBuild::Configuration(stored, tls, origins),
                    )
                }
                PendingChange::Proposal(LoadedConfig { config, stored, .. }) => {
                    (self.input_of(config, members, false), AfterBuild::Proposal(stored))
                }
                PendingChange::References(references) => (
                    BuildInput {
                        references: Some(references.clone()),
                        ..self.input_with(&[], members)
                    },
                    AfterBuild::References(references),
                ),
                PendingChange::Weights(first) => {
                    let all = self.weight_changes(first);
                    (self.input_with(&all, members), AfterBuild::Weights(all))
                }
                PendingChange::Removal(backend, removal, answerer) => {
                    match self.removed(&backend, removal, members) {
                        Ok(removed) => {
                            let names = removed.names.iter().cloned();
                            (
                                self.input_without(names, members),
                                AfterBuild::Removal(removed, answerer),
                            )
                        }
                        Err(error) => {
                            answerer.send(Err(error));
                            continue;
                        }
                    }
                }
            };
            self.publication.begin(input, after);
        }
    }

    /// `first` and the changes of weights that directly follow it in the queue.
    fn weight_changes(&mut self, first: WeightChange) -> Vec<WeightChange> {
        let queue = &mut self.publication.queue;
        let mut all = vec![first];
        while let Some(PendingChange::Weights(_)) = queue.front()
            && let Some(PendingChange::Weights(next)) = queue.pop_front()
        {
            all.push(next);
        }
        all
    }

    /// The backends that `ctl remove` names, and the answer.
    fn removed(
        &self,
        backend: &request::Backend,
        removal: Removal,
        members: &Members,
    ) -> Result<Removed, String> {
        let names: Vec<_> =
            self.named(backend, members)?.into_iter().map(|name| (name, removal)).collect();
        let flush = removal == Removal::Flush;
        let answer = json!(Change::Removed { removed: names.len(), flush });
        Ok(Removed { names, answer })
    }

    /// Uses other reference tables.
    pub(super) fn refer_to(&mut self, references: ReferenceSpecs) {
        self.publication.queue.push_back(PendingChange::References(references));
    }

    /// The input for a service table of another configuration.
    fn input_of(&self, config: Arc<Config>, members: &Members, is_reset: bool) -> BuildInput {
        BuildInput {
            overrides: members.overrides_under(&config, is_reset),
            config,
            old: Some(Arc::clone(&self.config)),
            ..self.input_without([], members)
        }
    }

    /// The input for a service table with these weights.
    fn input_with(&self, all: &[WeightChange], members: &Members) -> BuildInput {
        let mut overrides = Arc::clone(&members.overrides);
        for WeightChange { names, weight, .. } in all {
            let weights = names.iter().map(|name| (name.clone(), *weight));
            Arc::make_mut(&mut overrides).weights.extend(weights);
        }
        BuildInput {
            overrides,
            like: Some(Arc::clone(&self.table)),
            references: None,
            ..self.input_without([], members)
        }
    }

    /// The input for a service table without these backends.
    pub(super) fn input_without(
        &self,
        names: impl IntoIterator<Item = (TargetName, Removal)>,
        members: &Members,
    ) -> BuildInput {
        let mut overrides = Arc::clone(&members.overrides);
        Arc::make_mut(&mut overrides).removed.extend(names);
        let (config, builder) = (Arc::clone(&self.config), Arc::clone(&self.publication.built_by));
        let is_settled = self.removed_counts.is_settled();
        let references = Some(self.publication.references.clone());
        BuildInput { config, overrides, is_settled, old: None, like: None, references, builder }
    }
}
