//! What operators have changed outlasts the process of a node: see [`operator_file`](super::operator_file).
//!
//! Part of [`Members`]; it knows the configuration in force and its revision. The file is written on a thread of its own, as a
//! disk may hang, after a change is in force and before its client is answered. If that fails, the change stays in force, and
//! its answer reports the failure.

use super::background::Background;
use super::members::Members;
use super::operator_file::Kept;
use crate::config::Config;
use crate::failure::Failure;
use crate::replace::standing::Standings;
use crate::request::DrainEnd;
use crate::until::left_s;
use hotloop_ops::Answerer;
use hotloop_privileges::Capabilities;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// When a file that could not be written is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Keeps the file what operators have changed.
#[derive(Debug)]
pub struct Keeper {
    saver: Background<Kept, Result<(), String>>,
    /// Whether something has changed since the saver was given its last job.
    is_changed: bool,
    /// The answers to give once the saver has done its job, and once it has done the next one.
    saving: Vec<(Answerer, Value)>,
    waiting: Vec<(Answerer, Value)>,
    /// Why the file is not as it should be, and when it is tried again.
    failure: Option<(String, Instant)>,
}

impl Keeper {
    /// Of a node with this configuration; none where it keeps no file. A file that there is becomes what it should be.
    ///
    /// # Errors
    /// The system grants no thread.
    pub fn start(config: &Config) -> Result<Option<Self>, Failure> {
        let Some(path) = config.operator_file.clone() else { return Ok(None) };
        let save = move |kept: Kept| kept.save(&path);
        let saver = Background::start("lb-keep", Capabilities::empty(), save);
        Ok(Some(Self {
            saver: saver.map_err(|error| Failure::Run(format!("threads: {error}")))?,
            is_changed: true,
            saving: Vec::new(),
            waiting: Vec::new(),
            failure: None,
        }))
    }

    /// Why the file is not as it should be.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_ref().map(|(why, _)| why.as_str())
    }

    /// Whether the file is what it should be, or can't be.
    pub(super) const fn is_idle(&self) -> bool {
        !self.is_changed && !self.saver.is_busy()
    }

    /// Takes what the saver has done. Returns whether the file is to be written now.
    fn turn(&mut self, now: Instant) -> bool {
        if let Some(saved) = self.saver.take() {
            let before = self.failure.take();
            if let Err(why) = saved.and_then(|saved| saved) {
                if before.is_none_or(|(before, _)| before != why) {
                    tracing::error!("{why}");
                }
                self.failure = Some((why, now + RETRY_INTERVAL));
            } else if before.is_some() {
                tracing::info!("cluster.operator_file: it is written again");
            }
            self.answer();
        }
        if self.saver.is_busy() {
            return false;
        }
        if !self.is_changed {
            self.saving.append(&mut self.waiting);
            self.answer();
        }
        self.is_changed || self.failure.as_ref().is_some_and(|(_, retry)| *retry <= now)
    }

    /// Has this written.
    fn save(&mut self, kept: Kept) {
        self.is_changed = false;
        self.saving.append(&mut self.waiting);
        self.saver.give(kept);
    }

    /// Gives the answers that have waited for the saver, each with what has failed.
    fn answer(&mut self) {
        for (answerer, mut answer) in std::mem::take(&mut self.saving) {
            if let Some(why) = self.failure() {
                answer["unsaved"] = why.into();
            }
            answerer.send(Ok(answer));
        }
    }
}

impl Members {
    /// Something has changed, or an operator's change is over.
    pub(super) const fn note_change(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.is_changed = true;
        }
    }

    /// Gives these answers once what they are about is kept.
    pub(super) fn answer_once_kept(&mut self, mut answers: Vec<(Answerer, Value)>) {
        match &mut self.keeper {
            Some(keeper) => keeper.waiting.append(&mut answers),
            None => {
                for (answerer, answer) in answers {
                    answerer.send(Ok(answer));
                }
            }
        }
    }

    /// Keeps what has changed.
    pub(super) fn keep(&mut self, config: &Arc<Config>, revision: Option<i64>) {
        let Some(keeper) = &mut self.keeper else { return };
        if !keeper.turn(Instant::now()) {
            return;
        }
        let kept = Kept {
            standings: self.set_by_operators(),
            config: Arc::clone(config),
            revision,
            at: SystemTime::now(),
        };
        if let Some(keeper) = &mut self.keeper {
            keeper.save(kept);
        }
    }

    /// What operators have changed, but for a withdrawal.
    pub(super) fn set_by_operators(&self) -> Standings {
        let now = Instant::now();
        let drains = self.drains.all().map(|(name, until)| {
            let for_s = until.end.map(|end| left_s(end, now).max(1));
            (name.clone(), DrainEnd { for_s, until_empty: until.is_empty })
        });
        Standings {
            weights: self.overrides.weights.clone(),
            removed: self.overrides.removed.clone(),
            drains: drains.collect(),
            blocks: self.blocks.all(now).collect(),
            ..Standings::default()
        }
    }
}
