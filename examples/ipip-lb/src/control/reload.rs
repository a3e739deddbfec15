//! Publishes a new service table in three steps: read the configuration, build the table, refresh its
//! weights and health.

use super::Operator;
use super::publication::{Asker, Building, Built, Change, Plans, Refresh};
use super::sharing::Sharing;
use crate::services::{Removal, Standing};
use hotloop_ops::{Reply, notify};
use serde_json::json;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

impl Operator {
    /// Reads the configuration again and goes over to it. What was changed by hand since the last
    /// time is as the file says again. Where something is wrong with it, nothing changes.
    pub(super) fn reload(&mut self, asker: Asker) {
        notify::reloading();
        self.publication.unread.push(asker);
    }

    pub(super) fn reload_now(&mut self) -> Reply {
        let (answerer, answer) = mpsc::channel();
        self.reload(Asker::Client(answerer));
        Reply::Later(answer)
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
                Ok(read) => {
                    self.publication.unbuilt.push_back(Change::Configuration(read, askers));
                }
                Err(error) => self.refuse(askers, &error),
            }
        }
        let publication = &mut self.publication;
        if !publication.reader.is_busy() && !publication.unread.is_empty() {
            publication.reading = std::mem::take(&mut publication.unread);
            let stored = self.sharing.as_ref().map(Sharing::newest);
            publication.reader.give(stored);
        }
    }

    fn follow_builder(&mut self) {
        if let Some(built) = self.publication.builder.take()
            && let Some(building) = self.publication.building.take()
        {
            match built.and_then(|built| built) {
                Ok(built) => self.go_over(built, building),
                Err(error) => match building {
                    Building::Configuration(_, askers) => self.refuse(askers, &error),
                    Building::Removal(_, answerer) => drop(answerer.send(Err(error))),
                    Building::Drained(drained) => {
                        self.drains.fail(&drained, &error, Instant::now());
                    }
                },
            }
        }
        while !self.publication.builder.is_busy()
            && let Some(change) = self.publication.unbuilt.pop_front()
        {
            self.build(change);
        }
    }

    /// What of the standing outlasts a configuration: health and blocks.
    fn lasting(&self) -> Arc<Standing> {
        let (down, blocked) = (self.standing.down.clone(), self.standing.blocked.clone());
        Arc::new(Standing { down, blocked, ..Standing::default() })
    }

    /// Starts to build the service table of a change, unless the change is invalid.
    fn build(&mut self, change: Change) {
        let (plans, building) = match change {
            Change::Configuration((config, stored), askers) => {
                let standing = self.lasting();
                let (old, is_settled) =
                    (Arc::clone(&self.config), self.removed_counts.is_settled());
                let plans = Plans { config, standing, is_settled, old: Some(old) };
                (plans, Building::Configuration(stored, askers))
            }
            Change::Removal(arguments, answerer) => match self.plan_removal(&arguments) {
                Ok((plans, removed)) => (plans, Building::Removal(removed, answerer)),
                Err(error) => return drop(answerer.send(Err(error))),
            },
        };
        self.publication.building = Some(building);
        self.publication.builder.give(plans);
    }

    /// Goes over to what was built, but for publishing it.
    fn go_over(&mut self, built: Built, building: Building) {
        let Built { config, table, removed, probed } = built;
        (self.table, self.is_published) = (table, false);
        self.removed_counts.add(removed);
        self.publication.is_stale = true;
        self.publication.is_outdated = self.publication.refresher.is_busy();
        match building {
            Building::Configuration(stored, askers) => {
                self.config = config;
                if let Some((sharing, stored)) = self.sharing.as_mut().zip(stored) {
                    sharing.accept(stored);
                }
                self.standing = self.lasting();
                self.drains.cancel_all("the configuration was reloaded");
                self.probe(probed);
                self.refresh_down();
                self.accept(askers);
            }
            Building::Removal(removed, answerer) => {
                removed.names.iter().for_each(|(name, _)| self.drains.forget(name));
                Arc::make_mut(&mut self.standing).removed.extend(removed.names);
                self.publication.unrefreshed.push((answerer, removed.answer));
            }
            Building::Drained(drained) => {
                self.drains.finish(&drained);
                let removed = drained.into_iter().map(|it| (it.name, Removal::Rebalance));
                Arc::make_mut(&mut self.standing).removed.extend(removed);
            }
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
                    self.table = Arc::clone(&table);
                    self.publisher.publish(table);
                    self.is_published = true;
                    for (answerer, answer) in answers {
                        let _ = answerer.send(Ok(answer));
                    }
                }
                Err(error) => {
                    tracing::error!("{error}");
                    for (answerer, _) in answers {
                        let _ = answerer.send(Err(error.clone()));
                    }
                }
            }
        }
        let publication = &mut self.publication;
        if publication.is_stale && !publication.refresher.is_busy() {
            publication.is_stale = false;
            publication.refreshing = std::mem::take(&mut publication.unrefreshed);
            let (table, config) = (Arc::clone(&self.table), Arc::clone(&self.config));
            let standing = Arc::clone(&self.standing);
            publication.refresher.give(Refresh { table, config, standing });
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
                Asker::Client(answerer) => drop(answerer.send(Err(error.to_owned()))),
                Asker::Store => {
                    tracing::error!("the store's configuration: nothing has changed: {error}");
                }
            }
        }
    }
}
