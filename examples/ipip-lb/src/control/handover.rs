//! Leaving everything to a program that takes over, and going on in place of one that has: see
//! [`replace`](crate::replace).
//!
//! [`Handover`] belongs to [`Presence`]. Only the end of a run needs all four owners, and is a method of [`Control`]. This
//! program either goes on as before or has ended, with nothing received in between that its successor doesn't know.

use super::Control;
use super::cluster::JOURNAL_MAX;
use super::cluster_link::ClusterLink;
use super::presence::Presence;
use crate::announce::Announcer;
use crate::config::Config;
use crate::exception_mover::Exceptions;
use crate::replace::gate::Gate;
use crate::replace::inheritance::{Inheritance, Inherited};
use crate::replace::machine_time;
use crate::replace::standing::Standings;
use crate::replace::successor::Successor;
use crate::request::Candidate;
use hotloop::engine::Asker;
use hotloop_balancer::balance::Exchange;
use hotloop_balancer::exceptions::Change;
use hotloop_balancer::services::ServiceTable;
use hotloop_ops::{Reply, Stream};
use serde_json::json;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// How long changes of the service table that are under way are waited for.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// How long nothing may be received before the run ends: then this program goes on.
const CLOSED_MAX: Duration = Duration::from_millis(500);

/// How long cores of a pipeline may take for what they have received.
const DRAIN_MIN: Duration = Duration::from_millis(2);

/// How often workers are asked once nothing is received, to be sure that they have handed over everything: one answer
/// may have been on its way, the second is the last word, and the third comes from after a pipeline's.
const ROUNDS: u64 = 3;

/// How often it is looked what workers and the successor have said.
const LOOK_INTERVAL: Duration = Duration::from_micros(100);

/// What control has for a takeover, in either role.
#[derive(Debug)]
pub struct Handover {
    gate: Gate,
    /// The ports', where they have any.
    /// Those of a balancer without peers, which nobody asks about otherwise.
    alone: Option<Exceptions>,
    /// A successor that has asked: what it said of itself, and its connection, which is on its way.
    asked: Option<(Candidate, Receiver<UnixStream>)>,
    successor: Option<Successor>,
    /// Since when it is ready, where it is.
    ready: Option<Instant>,
    /// Since when nothing is received.
    closed: Option<Duration>,
    /// What a predecessor has left, as far as workers have not entered it.
    imports: Vec<Change>,
}

impl Default for Handover {
    fn default() -> Self {
        Self {
            gate: Gate::new(true),
            alone: None,
            asked: None,
            successor: None,
            ready: None,
            closed: None,
            imports: Vec::new(),
        }
    }
}

impl Handover {
    /// Of a balancer that receives by `gate`. One without peers asks its workers by `asker`.
    #[must_use]
    pub fn new(gate: Gate, alone: Option<(Asker<Exchange, Exchange>, usize)>) -> Self {
        let alone = alone.map(|(asker, worker_count)| Exceptions::new(asker, worker_count));
        Self { gate, alone, ..Self::default() }
    }

    /// Takes over the connections of a predecessor, which workers are then to enter.
    pub(super) fn inherit(&mut self, inherited: &mut Inherited) {
        self.imports = inherited.take_connections();
    }

    /// Ends a takeover that comes to nothing.
    fn cancel(&mut self, why: &str) {
        if self.asked.take().is_none() {
            return;
        }
        tracing::warn!("replace: nothing is handed over, and this program goes on: {why}");
        if let Some(successor) = self.successor.take() {
            successor.refuse(why);
        }
        if let Some(exceptions) = &mut self.alone {
            exceptions.keep_journals(0);
        }
        self.ready = None;
    }

    /// Takes in the connection of a successor that has asked.
    fn begin(&mut self) {
        let Some((_, stream)) = &self.asked else { return };
        let Ok(stream) = stream.try_recv() else { return };
        let begun = answer(&stream).and_then(|()| Successor::new(stream));
        match begun {
            Ok(successor) => self.successor = Some(successor),
            Err(error) => self.cancel(&error.to_string()),
        }
    }
}

fn answer(mut stream: &UnixStream) -> std::io::Result<()> {
    writeln!(stream, "{}", json!({ "ok": null }))
}

/// Asks workers for what the successor is to know, and takes what they have found.
fn share_with(successor: &mut Successor, exceptions: &mut Exceptions) {
    successor.follow_walk(exceptions);
    exceptions.turn(|pulled| {
        successor.take(pulled);
        true
    });
    let has_lost = exceptions.take_has_lost();
    successor.end_walk(exceptions.is_walking(), has_lost);
}

impl Presence {
    /// Lets a program take over that asks for that.
    pub(super) fn replace(
        &mut self,
        candidate: Candidate,
        config: &Config,
    ) -> Result<Reply, String> {
        if self.handover.asked.is_some() {
            return Err("another program is taking over already".to_owned());
        }
        if self.leave.is_some() {
            return Err("this program is on its way out: ctl announce has it stay".to_owned());
        }
        candidate.check(config)?;
        tracing::info!("replace: another program asks to take over");
        let (sender, stream) = mpsc::sync_channel(1);
        if let Some(exceptions) = &mut self.handover.alone {
            exceptions.keep_journals(JOURNAL_MAX);
        }
        self.handover.asked = Some((candidate, stream));
        Ok(Reply::Stream(Stream::new(move |stream| drop(sender.send(stream)))))
    }

    /// Moves exceptions between workers, other nodes, and a program that takes over.
    pub(super) fn move_exceptions(&mut self, link: &mut ClusterLink, table: &ServiceTable) {
        let handover = &mut self.handover;
        if handover.successor.is_none() {
            handover.begin();
        }
        match (&mut link.node, &mut handover.alone, &mut handover.successor) {
            (Some(node), _, successor) => node.turn(table, successor.as_mut()),
            (None, Some(exceptions), Some(successor)) => share_with(successor, exceptions),
            // Workers are to stop noting changes.
            (None, Some(exceptions), None) if exceptions.has_journals() => {
                exceptions.turn(|_| true);
            }
            _ => {}
        }
        match handover.successor.as_mut().map(Successor::turn) {
            Some(Ok(true)) => _ = handover.ready.get_or_insert_with(Instant::now),
            Some(Err(why)) => handover.cancel(&why),
            Some(Ok(false)) | None => {}
        }
    }
}

impl Control {
    /// Whether the run is to end, because another program takes over. It has all that this one knows then, and nothing
    /// more is received.
    pub fn hands_over(&mut self) -> bool {
        let Some(ready) = self.presence.handover.ready else { return false };
        if !self.is_settled() {
            if ready.elapsed() > SETTLE_MAX {
                self.presence
                    .handover
                    .cancel("changes of the configuration are under way: try again");
            }
            return false;
        }
        // It may have been loaded again meanwhile.
        let asked = self.presence.handover.asked.as_ref();
        let checked = asked.map_or(Ok(()), |(it, _)| it.check(&self.publisher.config));
        let closed = checked.and_then(|()| self.close());
        match &closed {
            Ok(()) => {
                let ms = self.presence.handover.closed.map_or(0.0, since_ms);
                tracing::info!(
                    "replace: nothing is received any more, and the other program knows all, after {ms:.1} ms"
                );
            }
            Err(why) => {
                self.presence.handover.gate.set_open(true);
                self.presence.handover.closed = None;
                self.presence.handover.cancel(why);
            }
        }
        closed.is_ok()
    }

    /// Whether no other service table is on its way, and the exceptions of the one in use are marked.
    fn is_settled(&mut self) -> bool {
        let is_busy = self.publisher.publication.is_busy()
            || self.members.keeper.as_ref().is_some_and(|it| !it.is_idle());
        let is_in_force =
            self.publisher.workers.collect() && self.publisher.is_published && !is_busy;
        let table = &self.publisher.table;
        is_in_force
            && exceptions(&mut self.link.node, &mut self.presence.handover)
                .is_some_and(|it| it.is_marked(table))
    }

    /// Has nothing more received, and the successor know everything.
    fn close(&mut self) -> Result<(), String> {
        let begin = Instant::now();
        self.presence.handover.gate.set_open(false);
        self.presence.handover.closed = Some(machine_time());
        let rounds = |operator: &mut Self| {
            exceptions(&mut operator.link.node, &mut operator.presence.handover)
                .map_or(0, |it| it.round_count())
        };
        let last_round = rounds(self) + ROUNDS;
        loop {
            self.presence.move_exceptions(&mut self.link, &self.publisher.table);
            let is_drained =
                begin.elapsed() >= DRAIN_MIN && rounds(self) >= last_round && self.is_settled();
            match &self.presence.handover.successor {
                None => return Err("it went away".into()),
                Some(successor) if is_drained && successor.is_caught_up() => return Ok(()),
                Some(_) if begin.elapsed() > CLOSED_MAX => {
                    return Err(format!(
                        "workers and it took longer than {} ms",
                        CLOSED_MAX.as_millis()
                    ));
                }
                Some(_) => std::thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    /// Ends it, for a successor that is ready: what is announced stays so.
    #[must_use]
    pub fn let_go(mut self) -> Option<(Successor, Inheritance)> {
        let (successor, closed) =
            self.presence.handover.successor.take().zip(self.presence.handover.closed)?;
        let (standings, neighbours) = (self.standings(), self.port_hops.known());
        self.presence.announcer.take().into_iter().for_each(Announcer::leave);
        Some((successor, Inheritance { closed, interfaces: Vec::new(), neighbours, standings }))
    }

    /// What operators and health checks have changed.
    fn standings(&self) -> Standings {
        Standings {
            down: Standings::down_of(&self.members.overrides, &self.publisher.config),
            is_withdrawn: self.presence.announcer.as_ref().is_some_and(Announcer::is_withdrawn),
            ..self.members.set_by_operators()
        }
    }

    /// Goes by what a predecessor, or an earlier run, has left: the service table in use is made of it.
    #[must_use]
    pub fn going_by(mut self, standings: &Standings) -> Self {
        self.members.overrides = standings.overrides(&self.publisher.config).into();
        self.members.probes.take_down(self.members.overrides.down.clone());
        self.members.findings.begin_with(self.members.overrides.down.clone());
        let now = Instant::now();
        for (name, end) in &standings.drains {
            if let Some(until) = end.until(now) {
                self.members.drains.plan(name.clone(), until, now);
            }
        }
        // Workers have them already.
        standings.blocks.iter().for_each(|block| drop(self.members.block(block)));
        if let Some(announcer) = self.presence.announcer.as_mut().filter(|_| standings.is_withdrawn)
        {
            announcer.withdraw();
        }
        self
    }

    /// Has workers enter what a predecessor has left. Returns whether they have, within this time.
    pub fn enter(&mut self, within: Duration) -> bool {
        let (begin, table) = (Instant::now(), &self.publisher.table);
        let mut imports = std::mem::take(&mut self.presence.handover.imports);
        let Some(exceptions) = exceptions(&mut self.link.node, &mut self.presence.handover) else {
            return true;
        };
        let has_entered = loop {
            let taken = exceptions.import(table, &imports);
            imports.drain(..taken);
            // Nothing is received, so nothing else changes.
            exceptions.turn(|_| true);
            if imports.is_empty() && exceptions.has_entered_all() {
                break true;
            } else if begin.elapsed() > within {
                break false;
            }
            std::thread::sleep(LOOK_INTERVAL);
        };
        self.presence.handover.imports = imports;
        has_entered
    }

    /// Has packets received from now on, in place of the predecessor, which has received none since `closed`.
    pub fn open(&mut self, closed: Duration) {
        self.presence.handover.gate.set_open(true);
        let refused = exceptions(&mut self.link.node, &mut self.presence.handover)
            .map_or(0, |it| it.refused_count());
        let ms = since_ms(closed);
        tracing::info!(
            "replace: this program has taken over; for {ms:.1} ms neither received anything"
        );
        if refused > 0 {
            tracing::warn!(
                "replace: {refused} connections found no room or no backend here, and may break"
            );
        }
    }
}

fn since_ms(time: Duration) -> f64 {
    machine_time().saturating_sub(time).as_secs_f64() * 1e3
}

/// The way to the exceptions of workers, which others may ask about, too.
fn exceptions<'a>(
    node: &'a mut Option<super::Node>,
    handover: &'a mut Handover,
) -> Option<&'a mut Exceptions> {
    match node {
        Some(node) => Some(node.exceptions()),
        None => handover.alone.as_mut(),
    }
}
