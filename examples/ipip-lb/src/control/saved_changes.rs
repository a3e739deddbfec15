//! Operators' changes outlast the process: see [`operator_file`](super::operator_file).
//!
//! Part of [`Members`]. The file is written on a separate thread, because a disk may hang: after a
//! change is in force, and before its client is answered. If that fails, the change stays in force,
//! and its answer reports the failure.

use super::background::Background;
use super::members::Members;
use super::operator_file::Kept;
use crate::answer::Saved;
use crate::config::Config;
use crate::failure::Failure;
use crate::replace::saved_overrides::SavedOverrides;
use crate::request::DrainEnd;
use crate::until::left_s;
use hotloop_balancer::services::Removal;
use hotloop_ops::{Answerer, Reply};
use hotloop_privileges::Capabilities;
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime};

/// Delay before a failed write is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Keeps the file up to date with operators' changes.
#[derive(Debug)]
pub struct Keeper {
    saver: Background<Kept, Result<(), String>>,
    /// Whether something has changed since the saver's last job began.
    is_changed: bool,
    /// The answers to send after the saver's current job, and after its next one.
    saving: Vec<(Answerer, Value)>,
    waiting: Vec<(Answerer, Value)>,
    /// The reason that the file is out of date, and the time of the next attempt.
    failure: Option<(String, Instant)>,
}

impl Keeper {
    /// The keeper of a node with this configuration; `None` if it has no file. An existing file is
    /// brought up to date.
    ///
    /// # Errors
    /// If the system provides no thread.
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

    /// The reason that the file is out of date.
    pub(super) fn failure(&self) -> Option<&String> {
        self.failure.as_ref().map(|(why, _)| why)
    }

    /// Whether the file is up to date, or can't be.
    pub(super) const fn is_idle(&self) -> bool {
        !self.is_changed && !self.saver.is_busy()
    }

    /// Takes the saver's result. Returns whether the file must be written now.
    fn turn(&mut self, now: Instant) -> bool {
        if let Some(saved) = self.saver.take() {
            let before = self.failure.take();
            if let Err(why) = saved.and_then(|saved| saved) {
                if before.is_none_or(|(before, _)| before != why) {
                    tracing::error!("{why}");
                }
                self.failure = Some((why, now + RETRY_INTERVAL));
            } else if before.is_some() {
                tracing::info!("balancer.operator_file: it is written again");
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

    /// Begins to write this.
    fn save(&mut self, kept: Kept) {
        self.is_changed = false;
        self.saving.append(&mut self.waiting);
        self.saver.give(kept);
    }

    /// Sends the answers that waited for the saver, with its error if it has failed.
    fn answer(&mut self) {
        for (answerer, change) in std::mem::take(&mut self.saving) {
            let unsaved = self.failure().cloned();
            answerer.send(Ok(json!(Saved { change, unsaved })));
        }
    }
}

impl Members {
    /// Records that an operator's change has begun or ended.
    pub(super) const fn note_change(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.is_changed = true;
        }
    }

    /// Sends these answers once their changes are saved.
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

    /// The reply that is sent once all changes are saved.
    pub(super) fn reply_once_kept(&mut self, answer: Value) -> Reply {
        let (answerer, reply) = Reply::later();
        self.answer_once_kept(vec![(answerer, answer)]);
        reply
    }

    /// Saves changes.
    pub(super) fn keep(&mut self) {
        let Some(keeper) = &mut self.keeper else { return };
        if !keeper.turn(Instant::now()) {
            return;
        }
        let kept = Kept { saved: self.set_by_operators(), at: SystemTime::now() };
        if let Some(keeper) = &mut self.keeper {
            keeper.save(kept);
        }
    }

    /// Operators' changes.
    pub(super) fn set_by_operators(&self) -> SavedOverrides {
        let now = Instant::now();
        let drains = self.drains.all().map(|(name, until)| {
            let for_s = until.end.map(|end| left_s(end, now).max(1));
            (name.clone(), DrainEnd { for_s, until_empty: until.is_empty })
        });
        let removed = self.overrides.removed.iter();
        let removed = removed.map(|(name, removal)| (name.clone(), *removal == Removal::Flush));
        SavedOverrides {
            weights: self.overrides.weights.clone().into_iter().collect(),
            removed: removed.collect(),
            drains: drains.collect(),
            blocks: self.blocks.all(now).collect(),
            is_withdrawn: self.is_withdrawn,
            ..SavedOverrides::default()
        }
    }
}
