//! Publishes a new service table in three steps: read the configuration, build the table, refresh its
//! weights and health.

use super::preparing::{Preparing, Proposal, Rest};
use super::publication::{Aside, Asker, Building, Change, Plans, Refresh};
use super::sharing::Sharing;
use super::{Node, Operator};
use crate::config::Config;
use crate::overrides::Overrides;
use hotloop_balancer::services::Removal;
use hotloop_ops::{Reply, notify};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

impl Operator {
    /// Reads the configuration again and goes over to it. What was changed by hand since the last
    /// time is as the file says again. Where something is wrong with it, nothing changes.
    pub(super) fn reload(&mut self, asker: Asker) {
        notify::reloading();
        self.publication.unread.push(asker);
    }

    pub(super) fn reload_now(&mut self) -> Reply {
        let (answerer, reply) = Reply::later();
        self.reload(Asker::Client(answerer));
        reply
    }

    /// Takes what the other threads have done, and gives them what there is to do.
    pub(super) fn go_on(&mut self) {
        self.follow_reader();
        self.follow_builder();
        self.follow_refresher();
    }

    fn follow_reader(&mut self) {
        if let Some(read) = self.publication.reader.take() {
            let askers = std::mem::take(&mut self.publication.reading);
            match read.and_then(|read| read) {
                Ok((read, renewed)) => {
                    let change = Change::Configuration(read, renewed, askers);
                    self.publication.unbuilt.push_back(change);
                }
                Err(error) => self.refuse(askers, &error),
            }
        }
        let publication = &mut self.publication;
        if !publication.reader.is_busy() && !publication.unread.is_empty() {
            publication.reading = std::mem::take(&mut publication.unread);
            let stored = self.sharing.as_ref().map(Sharing::newest);
            // The store has a configuration, and no certificates.
            let is_wanted = publication.reading.iter().any(|it| !matches!(it, Asker::Store));
            let tls = self.node.as_ref().filter(|_| is_wanted).and_then(Node::tls).cloned();
            publication.reader.give((stored, tls));
        }
    }

    fn follow_builder(&mut self) {
        if let Some(built) = self.publication.builder.take()
            && let Some(building) = self.publication.building.take()
        {
            match built.and_then(|built| built) {
                Ok(built) => self.built(built, building),
                Err(error) => match building {
                    Building::Proposal(_) => {
                        self.publication.proposal = Proposal::Refused(error);
                    }
                    Building::Weights(all) => {
                        for weighing in all {
                            weighing.answerer.send(Err(error.clone()));
                        }
                    }
                    Building::Configuration(_, _, askers) => self.refuse(askers, &error),
                    Building::Removal(_, answerer) => answerer.send(Err(error)),
                    Building::Drained(drained) => {
                        self.drains.fail(&drained, &error, Instant::now());
                    }
                },
            }
        }
        while self.publication.may_build()
            && let Some(change) = self.publication.unbuilt.pop_front()
        {
            self.build(change);
        }
    }

    /// The overrides that outlast a configuration: health and blocks.
    fn lasting(&self) -> Arc<Overrides> {
        self.lasting_with(&Overrides::default())
    }

    /// The same, with the weights and removals of another.
    fn lasting_with(&self, other: &Overrides) -> Arc<Overrides> {
        let (down, blocked) = (self.overrides.down.clone(), self.overrides.blocked.clone());
        let (weights, removed) = (other.weights.clone(), other.removed.clone());
        Arc::new(Overrides { down, blocked, weights, removed })
    }

    /// Starts to build the service table of a change, unless the change is invalid.
    fn build(&mut self, change: Change) {
        let (plans, building) = match change {
            Change::Configuration((config, stored), renewed, askers) => {
                (self.plans_of(config), Building::Configuration(stored, renewed, askers))
            }
            Change::Proposal((config, stored)) => {
                (self.plans_of(config), Building::Proposal(stored))
            }
            Change::Weights(first) => {
                let all = self.publication.weighings(first);
                (self.plans_with(&all), Building::Weights(all))
            }
            Change::Removal(backend, removal, answerer) => {
                match self.plan_removal(&backend, removal) {
                    Ok((plans, removed)) => (plans, Building::Removal(removed, answerer)),
                    Err(error) => return answerer.send(Err(error)),
                }
            }
        };
        self.publication.building = Some(building);
        self.publication.builder.give(plans);
    }

    /// The plan for a service table of another configuration.
    fn plans_of(&self, config: Arc<Config>) -> Plans {
        Plans {
            config,
            overrides: self.lasting(),
            is_settled: self.removed_counts.is_settled(),
            old: Some(Arc::clone(&self.config)),
            like: None,
            builder: Arc::clone(&self.publication.built_by),
        }
    }

    /// Goes over to what was prepared, but for publishing it.
    pub(super) fn go_over(&mut self) {
        let Some(Preparing { building, rest, .. }) = self.publication.preparing.take() else {
            return;
        };
        let Some(Aside { config, table, .. }) = self.publication.other.take() else { return };
        let Rest { builder, removed, probed } = rest;
        let before = Aside {
            config: Arc::clone(&self.config),
            overrides: Arc::clone(&self.overrides),
            table: std::mem::replace(&mut self.table, table),
        };
        self.is_published = false;
        self.note_change();
        self.publication.built_by = builder;
        self.publication.adopted = Instant::now();
        self.removed_counts.add(removed);
        self.publication.is_stale = true;
        self.publication.is_outdated = self.publication.refresher.is_busy();
        let building = match building {
            Building::Proposal(stored) => Building::Configuration(stored, None, vec![Asker::Store]),
            building => building,
        };
        match building {
            Building::Configuration(stored, renewed, askers) => {
                self.config = config;
                if let Some((node, tls)) = self.node.as_mut().zip(renewed) {
                    node.renew(tls);
                }
                if let Some((sharing, stored)) = self.sharing.as_mut().zip(stored) {
                    // Peers that have another revision go by the table before this one.
                    let is_other = sharing.revision() != stored.revision && self.node.is_some();
                    self.publication.other = is_other.then_some(before);
                    sharing.accept(stored);
                }
                self.overrides = self.lasting();
                self.drains.cancel_all("the configuration was reloaded");
                self.probe(probed);
                self.refresh_down();
                self.accept(askers);
            }
            Building::Removal(removed, answerer) => {
                removed.names.iter().for_each(|(name, _)| self.drains.forget(name));
                Arc::make_mut(&mut self.overrides).removed.extend(removed.names);
                self.publication.unrefreshed.push((answerer, removed.answer));
            }
            Building::Drained(drained) => {
                self.drains.finish(&drained);
                let removed = drained.into_iter().map(|it| (it.name, Removal::Rebalance));
                Arc::make_mut(&mut self.overrides).removed.extend(removed);
            }
            Building::Weights(all) => self.weighed(all),
            Building::Proposal(_) => {}
        }
    }

    fn follow_refresher(&mut self) {
        if let Some(refreshed) = self.publication.refresher.take() {
            let answers = std::mem::take(&mut self.publication.refreshing);
            let is_outdated = std::mem::take(&mut self.publication.is_outdated);
            match refreshed {
                // A newer service table has replaced the one that was refreshed.
                Ok(_) if is_outdated => self.publication.unrefreshed.extend(answers),
                Ok(table) => {
                    if let Some((other, table)) = self.publication.other.as_mut().zip(table.other())
                    {
                        other.table = Arc::clone(table);
                    }
                    self.table = Arc::clone(&table);
                    self.set_epoch();
                    self.publisher.publish(table);
                    self.is_published = true;
                    self.answer_once_kept(answers);
                }
                Err(error) => {
                    tracing::error!("{error}");
                    for (answerer, _) in answers {
                        answerer.send(Err(error.clone()));
                    }
                }
            }
        }
        if self.publication.is_stale && !self.publication.refresher.is_busy() {
            let used = Aside {
                config: Arc::clone(&self.config),
                overrides: Arc::clone(&self.overrides),
                table: Arc::clone(&self.table),
            };
            // Health and blocks are the same for both.
            let other = self.publication.other.clone();
            let other = other
                .map(|other| Aside { overrides: self.lasting_with(&other.overrides), ..other });
            let publication = &mut self.publication;
            publication.is_stale = false;
            publication.refreshing = std::mem::take(&mut publication.unrefreshed);
            publication.refresher.give(Refresh { used, other });
        }
    }

    /// What workers say from now on follows from the store's revision that is in force.
    pub(super) fn set_epoch(&self) {
        if let Some((node, sharing)) = self.node.as_ref().zip(self.sharing.as_ref()) {
            node.set_epoch(sharing.revision() as u64);
        }
    }

    /// All workers go by the store's revision that is in force.
    pub(super) fn enter_epoch(&self) {
        if let Some((node, sharing)) = self.node.as_ref().zip(self.sharing.as_ref()) {
            node.enter_epoch(sharing.revision() as u64);
        }
    }

    /// A new configuration is in force, but for publishing it: clients hear of it once that is done.
    fn accept(&mut self, askers: Vec<Asker>) {
        notify::ready();
        self.reload_count += 1;
        self.reload_failure = None;
        let services = &self.config.services;
        let backend_count: usize = services.iter().map(|it| it.backends.len()).sum();
        let answer = json!({ "services": services.len(), "backends": backend_count });
        for asker in askers {
            match asker {
                Asker::Signal => tracing::info!("SIGHUP: the configuration was reloaded"),
                Asker::Client(answerer) => {
                    self.publication.unrefreshed.push((answerer, answer.clone()));
                }
                // It was said which revision is in force.
                Asker::Store => {}
            }
        }
    }

    /// Something is wrong with a new configuration: nothing has changed.
    fn refuse(&mut self, askers: Vec<Asker>, error: &str) {
        notify::ready();
        self.reload_failure = Some(error.to_owned());
        for asker in askers {
            match asker {
                Asker::Signal => tracing::error!("SIGHUP: nothing has changed: {error}"),
                Asker::Client(answerer) => answerer.send(Err(error.to_owned())),
                Asker::Store => {
                    tracing::error!("the store's configuration: nothing has changed: {error}");
                }
            }
        }
    }
}
