//! The owner of the path from a configuration to the workers: the configuration in force, its
//! service table, and all changes under way, which [`publication`](super::publication) describes.
//!
//! It may use [`Members`], whose overrides are part of each table, and the [`ClusterLink`], because
//! peers prepare for a change. The configuration, the table and the table's builder always belong
//! to the same version.

use super::cluster_link::ClusterLink;
use super::members::Members;
use super::publication::Publication;
use crate::config::Config;
use hotloop::engine;
use hotloop_balancer::counts::{RemovedCounts, Summary, WorkerCounts};
use hotloop_balancer::services::ServiceTable;
use hotloop_ops::Reply;
use serde_json::Value;
use std::sync::Arc;

/// The configuration and the service table in force, and their changes.
#[derive(Debug)]
pub struct Publisher {
    pub config: Arc<Config>,
    /// The service table that is in use, or soon will be, except for weights and health.
    pub table: Arc<ServiceTable>,
    /// Whether the table, or a refreshed form of it, was published.
    pub is_published: bool,
    /// The channel of tables to the workers.
    pub workers: engine::Publisher<ServiceTable>,
    pub counts: Arc<[WorkerCounts]>,
    pub removed_counts: RemovedCounts,
    pub publication: Publication,
    pub reload_count: u64,
    /// The reason that the last reload failed; `None` once a reload has succeeded.
    pub reload_failure: Option<String>,
}

/// The configuration in force, and the service table made of it.
#[derive(Clone, Copy, Debug)]
pub struct InForce<'a> {
    pub config: &'a Config,
    pub table: &'a ServiceTable,
}

impl Publisher {
    /// The configuration and the table in force.
    pub fn in_force(&self) -> InForce<'_> {
        InForce { config: &self.config, table: &self.table }
    }

    /// Advances changes, and returns whether all workers use the table in force.
    pub fn turn(&mut self, members: &mut Members, link: &mut ClusterLink) -> bool {
        self.publish_changes(members, link);
        let is_in_force = self.workers.collect() && self.is_published;
        if is_in_force {
            // No worker uses an earlier service table: nothing counts in vacated slots.
            self.removed_counts.settle(&self.counts);
        }
        self.end_drains(is_in_force, members, link);
        is_in_force
    }

    /// Publishes changed blocks, and then sends this answer.
    pub fn publish_blocks(&mut self, answer: Value) -> Reply {
        let (answerer, reply) = Reply::later();
        self.publication.refresh.answer_next(answerer, answer);
        reply
    }

    /// The workers' counts up to now.
    pub fn summary(&self) -> Summary<'_> {
        let removed = Some(&self.removed_counts);
        Summary { services: &self.table, workers: &self.counts, removed }
    }

    /// Number of connections that workers remember.
    pub fn connection_count(&self) -> u64 {
        self.counts.iter().map(WorkerCounts::connection_count).sum()
    }
}
