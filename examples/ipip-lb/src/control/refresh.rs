//! Updating the service table in force with weights, health and blocks on a thread, and publishing
//! it: the last steps of a [publication](super::publication). Changes of health and blocks begin
//! here, because they need no build.
//!
//! Part of [`Publisher`]; reads [`Members`]. A table that was replaced during its refresh is not
//! published, and the answers that waited for it wait for the next one.

use super::background::Background;
use super::cluster_link::ClusterLink;
use super::members::Members;
use super::publication::TableVersion;
use super::publisher::Publisher;
use hotloop_balancer::services::{Maglevs, ServiceTable};
use hotloop_ops::Answerer;
use hotloop_privileges::Capabilities;
use serde_json::Value;
use std::io;
use std::sync::Arc;

/// The thread, and the answers that wait for it.
#[derive(Debug)]
pub struct Refresh {
    refresher: Background<TableVersion, Arc<ServiceTable>>,
    /// Whether weights, health or blocks have changed since the last job began.
    is_stale: bool,
    /// Whether the current job's service table was replaced.
    is_outdated: bool,
    /// The answers to send after the current job.
    refreshing: Vec<(Answerer, Value)>,
    /// The answers to send after the next job.
    next: Vec<(Answerer, Value)>,
}

impl Refresh {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system provides no thread.
    pub fn start(maglevs: Maglevs) -> io::Result<Self> {
        let work = move |used: TableVersion| used.refreshed(&maglevs).table;
        Ok(Self {
            refresher: Background::start("lb-refresh", Capabilities::empty(), work)?,
            is_stale: false,
            is_outdated: false,
            refreshing: Vec::new(),
            next: Vec::new(),
        })
    }

    /// Sends this answer once changed blocks are published.
    pub fn answer_next(&mut self, answerer: Answerer, answer: Value) {
        self.is_stale = true;
        self.answer_later(answerer, answer);
    }

    /// Starts over with a new table: the result of the current job is useless.
    pub const fn restart(&mut self) {
        self.is_stale = true;
        self.is_outdated = self.refresher.is_busy();
    }

    /// Sends this answer once all changes up to now are published.
    pub fn answer_later(&mut self, answerer: Answerer, answer: Value) {
        self.next.push((answerer, answer));
    }

    /// Whether any change is not published yet.
    pub const fn is_busy(&self) -> bool {
        self.is_stale || self.refresher.is_busy()
    }

    /// Whether an answer is waiting.
    pub const fn is_awaited(&self) -> bool {
        !self.next.is_empty() || !self.refreshing.is_empty()
    }
}

impl Publisher {
    /// Publishes the refreshed table, and refreshes it again if it is stale.
    pub(super) fn refresh(&mut self, members: &mut Members, link: &ClusterLink) {
        let refresh = &mut self.publication.refresh;
        refresh.is_stale |= members.take_changed();
        if let Some(refreshed) = refresh.refresher.take() {
            let answers = std::mem::take(&mut refresh.refreshing);
            match refreshed {
                Ok(_) if std::mem::take(&mut refresh.is_outdated) => refresh.next.extend(answers),
                Ok(table) => self.publish(table, answers, members, link),
                Err(error) => {
                    refresh.is_outdated = false;
                    tracing::error!("{error}");
                    for (answerer, _) in answers {
                        answerer.send(Err(error.clone()));
                    }
                }
            }
        }
        let refresh = &self.publication.refresh;
        if refresh.is_stale && !refresh.refresher.is_busy() {
            let used = TableVersion {
                config: Arc::clone(&self.config),
                overrides: Arc::clone(&members.overrides),
                table: Arc::clone(&self.table),
            };
            let refresh = &mut self.publication.refresh;
            refresh.is_stale = false;
            refresh.refreshing = std::mem::take(&mut refresh.next);
            refresh.refresher.give(used);
        }
    }

    fn publish(
        &mut self,
        table: Arc<ServiceTable>,
        answers: Vec<(Answerer, Value)>,
        members: &mut Members,
        link: &ClusterLink,
    ) {
        self.table = Arc::clone(&table);
        link.show_revision();
        self.workers.publish(table);
        self.is_published = true;
        members.answer_once_kept(answers);
    }
}
