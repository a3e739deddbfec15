//! The control thread's part: what changes a balancer while it runs, and what tells of it.
//!
//! An [`Operator`] stands between those who want something (an operator at the control socket, a
//! SIGHUP, the health checks) and the workers. Whatever is to change, it builds a whole new
//! [`Directory`] and publishes it; what it is asked about single connections, it asks the workers.
//! Neither ever makes a worker wait.

mod change;
mod connections;
mod lookup;
mod overview;

use crate::cli::Common;
use crate::config::Config;
use crate::counts::Summary;
use crate::directory::{Directory, Standing};
use crate::failure::Failure;
use crate::health::{Change, Probed, Probes, Room, State};
use crate::network_function::Steering;
use hotloop::engine::Control;
use hotloop_ops::{Hangup, Request};
use serde_json::Value;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

/// What the control thread has of a running balancer.
#[derive(Debug)]
pub struct Operator {
    /// Where the configuration comes from.
    source: Common,
    config: Config,
    standing: Standing,
    steering: Steering,
    probes: Probes,
    changes: Receiver<Change>,
    hangup: Hangup,
    since: Instant,
    reload_count: u64,
    /// What the last reload that failed said; none once one has succeeded.
    reload_failure: Option<String>,
}

impl Operator {
    /// Takes over a balancer that is about to run, and starts its health checks.
    ///
    /// # Errors
    /// The system grants no thread or no signal handler.
    pub fn start(source: Common, config: Config, steering: Steering) -> Result<Self, Failure> {
        let (sender, changes) = mpsc::channel();
        let failed = |error: std::io::Error| Failure::Run(format!("health checks: {error}"));
        let probes = Probes::start(sender).map_err(failed)?;
        let hangup = Hangup::watch().map_err(|error| Failure::Run(format!("SIGHUP: {error}")))?;
        let mut operator = Self {
            source,
            config,
            standing: Standing::default(),
            steering,
            probes,
            changes,
            hangup,
            since: Instant::now(),
            reload_count: 0,
            reload_failure: None,
        };
        let room = operator.probe();
        if room.probed_count > 0 && room.is_enough() {
            tracing::info!("health: {room}");
        }
        Ok(operator)
    }

    /// What is to be done every few milliseconds: signals, health, and directories on their way.
    pub fn turn(&mut self) {
        if self.hangup.came() {
            match self.reload() {
                Ok(()) => tracing::info!("SIGHUP: the configuration was reloaded"),
                Err(error) => tracing::error!("SIGHUP: nothing has changed: {error}"),
            }
        }
        self.follow_health();
        if self.steering.publisher.collect() {
            // No worker knows an earlier directory: nobody counts in slots that were left.
            for slot in self.steering.builder.settle() {
                self.steering.counts.iter().for_each(|counts| counts.clear(slot as usize));
            }
        }
    }

    /// Answers a request from the control socket.
    ///
    /// # Errors
    /// What is wrong with it, and what to ask instead.
    pub fn answer(&mut self, control: &Control<'_>, request: &Request) -> Result<Value, String> {
        let arguments = &request.arguments;
        match request.command.as_str() {
            "overview" => Ok(self.overview(control)),
            "services" => Ok(self.services()),
            "backends" => Ok(self.backends()),
            "connections" => self.connections(arguments),
            "lookup" => self.lookup(arguments),
            "drain" => self.drain(arguments),
            "weight" => self.set_weight(arguments),
            "remove" => self.remove(arguments),
            "reload" => self.reload_now(),
            _ => request.unknown(),
        }
    }

    /// The directory that workers have, or are about to.
    fn directory(&self) -> &Directory {
        &self.steering.directory
    }

    /// What the workers counted up to now.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        Summary { directory: &self.steering.directory, workers: &self.steering.counts }
    }

    /// Whom to probe, those of weight 0 among them.
    fn probed(&self) -> Vec<Probed> {
        let mut probed = Vec::new();
        for service in &self.config.services {
            let Some(health) = &service.health else { continue };
            probed.extend(
                service
                    .backends
                    .iter()
                    .map(|it| Probed { address: it.address, health: health.clone() }),
            );
        }
        probed
    }

    /// Probes those that are to be probed now, and says so where there is no room for all.
    fn probe(&mut self) -> Room {
        let room = self.probes.set(self.probed());
        if !room.is_enough() {
            tracing::warn!("health: {room}");
        }
        room
    }

    /// Takes in what the probes found since the last turn.
    fn follow_health(&mut self) {
        let mut has_changed = false;
        while let Ok(change) = self.changes.try_recv() {
            match change.is_up {
                true => tracing::info!("health: {} is up: {}", change.address, change.why),
                false => tracing::warn!("health: {} is down: {}", change.address, change.why),
            }
            let key = (change.address, change.health);
            has_changed |= match change.is_up {
                true => self.standing.down.remove(&key),
                false => self.standing.down.insert(key),
            };
        }
        if has_changed && let Err(error) = self.publish() {
            tracing::error!("health: {error}");
        }
    }

    /// The probes' states, and by them who is down.
    fn refresh_down(&mut self) -> Vec<State> {
        let states = self.probes.states();
        let down = states.iter().filter(|state| !state.is_up);
        self.standing.down = down.map(|state| (state.address, state.health.clone())).collect();
        states
    }

    /// Builds a directory of how things stand, and hands it to the workers.
    fn publish(&mut self) -> Result<(), String> {
        let built = self.steering.builder.build(&self.config, &self.standing);
        let directory = Arc::new(built.map_err(|error| error.to_string())?);
        self.steering.directory = Arc::clone(&directory);
        self.steering.publisher.publish(directory);
        Ok(())
    }
}
