//! The whole network function, from source to sink, for either deployment.

use crate::balance::{Balance, Egresses, Route};
use crate::config::{Config, DeploymentKind, Engine};
use crate::counts::{Summary, WorkerCounts};
use crate::directory::Directory;
use hotloop::engine::{Deployment, Graph, Outlet, Routed, source};
use hotloop::packet::PacketBuf;
use hotloop::stage::{Carries, Classify, Core, Error, Source};
use std::sync::Arc;

/// The seed of the hashes that spread flows over workers and backends. It is the same in every
/// balancer, so that several of them with one configuration send a flow to one backend.
pub const SEED: u64 = 0x6970_6970_2D6C_6200;

/// The balancer with all its workers.
#[derive(Debug)]
pub struct NetworkFunction {
    directory: Arc<Directory>,
    egresses: Egresses,
    counts: Arc<[WorkerCounts]>,
}

impl NetworkFunction {
    /// The balancer that `config` describes, with packets leaving by `egresses`.
    #[must_use]
    pub fn new(config: &Config, egresses: Egresses) -> Self {
        let directory = Arc::new(Directory::new(config));
        let counts = (0..config.engine.workers).map(|_| WorkerCounts::new(&directory)).collect();
        Self { directory, egresses, counts }
    }

    /// What the workers counted up to now.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        Summary { directory: &self.directory, workers: &self.counts }
    }

    /// The graph: what comes from the sources is classified, goes to the worker that owns its shard,
    /// is balanced there and leaves by the sinks.
    pub fn graph<S, Z>(
        &self,
        receive: impl Fn(&Core) -> Result<S, Error> + Sync,
        send: impl Fn(&Core) -> Result<Z, Error> + Sync,
    ) -> impl Graph
    where
        S: Source<Item: PacketBuf + Carries + Send>,
        Z: Outlet<Item = Routed<S::Item, Route>>,
    {
        source(receive)
            .stage(|_| Classify::seeded(SEED))
            .shard_by(|packet| packet.shard())
            .try_stage(|core| {
                let (directory, counts) = (Arc::clone(&self.directory), Arc::clone(&self.counts));
                Balance::new(directory, self.egresses, counts, core.index(), core.node())
            })
            .sink(send)
    }
}

impl Engine {
    /// What each core does, in the engine's terms.
    #[must_use]
    pub const fn deployment(&self) -> Deployment {
        match self.deployment {
            DeploymentKind::RunToCompletion => Deployment::run_to_completion(self.workers),
            DeploymentKind::Pipeline => Deployment::pipeline(self.dispatchers, self.workers),
        }
    }
}
