//! Both roles in a takeover: leaving everything to a successor, and continuing in place of a
//! predecessor. See [`replace`](crate::replace).
//!
//! [`Handover`] belongs to [`Presence`]. Only the end of a run needs all four owners, and is a
//! method of [`Control`]. This program either continues as before or ends with everything known to
//! its successor, because nothing is received after the gate closes.

use super::Control;
use super::cluster::JOURNAL_MAX;
use super::cluster_link::ClusterLink;
use super::presence::Presence;
use crate::config::Config;
use crate::replace::saved_overrides::SavedOverrides;
use crate::replace::{HandedOver, Inherited, ProgramState, SavedReferences};
use crate::request::Candidate;
use hotloop_balancer::exception_mover::ExceptionMover;
use hotloop_balancer::exceptions::Change;
use hotloop_balancer::services::ServiceTable;
use hotloop_cluster::replace::{Bequest, Gate, MachineTime, Successor};
use hotloop_kernel::VipAnnouncer;
use hotloop_ops::{Reply, Stream};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Maximum time to wait for changes of the service table under way, beside the time of a walk.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// Maximum time for entering a predecessor's connections before the control socket is served in
/// between.
const ENTERING_MAX: Duration = Duration::from_millis(50);

/// Maximum time with a closed gate before this program continues instead.
const CLOSED_MAX: Duration = Duration::from_millis(500);

/// Time for the cores of a pipeline to process everything received.
const DRAIN_MIN: Duration = Duration::from_millis(2);

/// Number of times that workers are asked after the gate has closed. The first answer may have been
/// on its way, the second is the last from a worker, and the third comes after the end of a
/// pipeline.
const ROUNDS: u64 = 3;

/// Interval of polls of workers and the successor.
const LOOK_INTERVAL: Duration = Duration::from_micros(100);

/// Control's state for a takeover, in either role.
#[derive(Debug)]
pub struct Handover {
    gate: Gate,
    /// The exceptions of a balancer without peers, which are only needed in a takeover.
    alone: Option<ExceptionMover>,
    /// The program that asks to take over, and the connection to it once the socket has passed it
    /// on.
    asked: Option<(Candidate, Receiver<UnixStream>)>,
    successor: Option<Successor>,
    /// When the successor became ready.
    ready: Option<Instant>,
    /// When the gate closed.
    closed: Option<MachineTime>,
    /// The predecessor's exceptions that workers have not entered yet.
    imports: Vec<Change>,
    /// When the predecessor's gate closed, until this program's opens.
    entering: Option<MachineTime>,
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
            entering: None,
        }
    }
}

impl Handover {
    /// The handover of a balancer that receives through `gate`. A balancer without peers asks its
    /// workers by `alone`.
    #[must_use]
    pub fn new(gate: Gate, alone: Option<ExceptionMover>) -> Self {
        Self { gate, alone, ..Self::default() }
    }

    /// Takes a predecessor's connections, for workers to enter before the gate opens.
    pub(super) fn inherit(&mut self, inherited: &mut Inherited) {
        self.entering = Some(inherited.closed);
        self.imports = inherited.take_connections();
    }

    /// Cancels the takeover.
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

    /// Accepts the connection of the successor, once it arrives.
    fn begin(&mut self) {
        let Some((_, stream)) = &self.asked else { return };
        let Ok(stream) = stream.try_recv() else { return };
        let begun = writeln!(&stream, r#"{{"ok":null}}"#).and_then(|()| Successor::new(stream));
        match begun {
            Ok(successor) => self.successor = Some(successor),
            Err(error) => self.cancel(&error.to_string()),
        }
    }
}

/// Requests the exceptions for the successor from workers, and passes on those found.
fn share_with(successor: &mut Bequest, exceptions: &mut ExceptionMover) {
    successor.follow_walk(exceptions);
    exceptions.turn(|pulled| {
        successor.take(pulled);
        true
    });
    let has_lost = exceptions.take_has_lost();
    successor.end_walk(exceptions.is_walking(), has_lost);
}

impl Presence {
    /// Lets the candidate take over.
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
        if handover.entering.is_some() {
            // A walk for a peer would miss what workers have not entered yet.
            return;
        }
        if handover.successor.is_none() {
            handover.begin();
        }
        let successor = handover.successor.as_mut().map(Successor::bequest);
        match (&mut link.node, &mut handover.alone, successor) {
            (Some(node), _, successor) => node.turn(table, successor),
            (None, Some(exceptions), Some(successor)) => share_with(successor, exceptions),
            // Workers must stop keeping journals.
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
    /// Whether the run must end because another program takes over. The successor then knows
    /// everything, and nothing more is received.
    pub(super) fn hands_over(&mut self) -> bool {
        let Some(ready) = self.presence.handover.ready else { return false };
        if !self.is_settled() {
            let walk_ms = self.publisher.config.spec().prepare_ms_max;
            if ready.elapsed() > SETTLE_MAX + Duration::from_millis(walk_ms.into()) {
                self.presence
                    .handover
                    .cancel("changes of the configuration are under way: try again");
            }
            return false;
        }
        // The configuration may have been reloaded meanwhile.
        let asked = self.presence.handover.asked.as_ref();
        let checked = asked.map_or(Ok(()), |(it, _)| it.check(&self.publisher.config));
        let closed = checked.and_then(|()| self.close());
        match &closed {
            Ok(()) => {
                let ms = self.presence.handover.closed.map_or(0.0, MachineTime::elapsed_ms);
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

    /// Whether no other service table is under way, and workers have marked all exceptions to the
    /// one in use.
    fn is_settled(&mut self) -> bool {
        let is_busy = self.publisher.publication.is_busy()
            || self.members.keeper.as_ref().is_some_and(|keeper| !keeper.is_idle());
        let is_in_force =
            self.publisher.workers.collect() && self.publisher.is_published && !is_busy;
        let table = &self.publisher.table;
        is_in_force
            && exceptions(&mut self.link.node, &mut self.presence.handover)
                .is_some_and(|exceptions| exceptions.is_marked(table))
    }

    /// Closes the gate, and waits until the successor knows everything.
    fn close(&mut self) -> Result<(), String> {
        let begin = Instant::now();
        self.presence.handover.gate.set_open(false);
        self.presence.handover.closed = Some(MachineTime::now());
        let rounds = |control: &mut Self| {
            exceptions(&mut control.link.node, &mut control.presence.handover)
                .map_or(0, |exceptions| exceptions.round_count())
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

    /// Ends control for a ready successor. Announced VIPs stay announced.
    #[must_use]
    pub fn let_go(mut self) -> Option<HandedOver> {
        let (successor, closed) =
            self.presence.handover.successor.take().zip(self.presence.handover.closed)?;
        let neighbours = self.port_hops.known().into_iter();
        let neighbours =
            neighbours.map(|(port, address, mac)| [address.to_string(), mac.to_string(), port]);
        let node = self.link.node.as_ref();
        let references = node.map(|node| SavedReferences::of(&node.agreement)).unwrap_or_default();
        let (neighbours, saved) = (neighbours.collect(), self.saved_overrides());
        let state = ProgramState { neighbours, saved, references };
        self.presence.announcer.take().into_iter().for_each(VipAnnouncer::leave);
        Some(HandedOver::new(successor, closed, state))
    }

    /// The changes by operators and health checks.
    fn saved_overrides(&self) -> SavedOverrides {
        SavedOverrides {
            down: SavedOverrides::down_of(&self.members.overrides, &self.publisher.config),
            is_withdrawn: self.presence.announcer.as_ref().is_some_and(VipAnnouncer::is_withdrawn),
            ..self.members.set_by_operators()
        }
    }

    /// Restores the changes left by a predecessor or an earlier run. The service table in use is
    /// already built with them.
    #[must_use]
    pub fn with_overrides(mut self, saved: &SavedOverrides) -> Self {
        self.members.overrides = saved.overrides(&self.publisher.config).into();
        self.members.probes.take_down(self.members.overrides.down.clone());
        self.members.findings.begin_with(self.members.overrides.down.clone());
        let now = Instant::now();
        for (name, end) in &saved.drains {
            if let Some(until) = end.until(now) {
                self.members.drains.plan(name.clone(), until, now);
            }
        }
        // Workers already have the blocks.
        saved.blocks.iter().for_each(|block| drop(self.members.block(block)));
        if let Some(announcer) = self.presence.announcer.as_mut().filter(|_| saved.is_withdrawn) {
            announcer.withdraw();
            self.members.is_withdrawn = true;
            tracing::warn!(
                "an operator has withdrawn the VIPs; ipip-lb ctl announce announces them again"
            );
        }
        self
    }

    /// Has workers enter the predecessor's exceptions, if there was one, for a turn, and opens the
    /// gate if they are done and use its reference tables, or the run `ends`.
    pub(super) fn continue_entering(&mut self, ends: bool) {
        let Some(closed) = self.presence.handover.entering else { return };
        let awaits = |node: &super::Node| node.agreement.is_awaiting();
        if ends || self.enter() && !self.link.node.as_ref().is_some_and(awaits) {
            self.open(closed);
            self.presence.handover.entering = None;
        }
    }

    /// Whether this program waits for its workers before it receives anything.
    pub(super) const fn is_entering(&self) -> bool {
        self.presence.handover.entering.is_some()
    }

    /// Whether nothing is received any more because another program takes over.
    pub(super) const fn has_handed_over(&self) -> bool {
        self.presence.handover.closed.is_some()
    }

    /// Has workers enter exceptions. Returns whether they are done, after at most [`ENTERING_MAX`].
    fn enter(&mut self) -> bool {
        let (begin, table) = (Instant::now(), &self.publisher.table);
        let mut imports = std::mem::take(&mut self.presence.handover.imports);
        let Some(exceptions) = exceptions(&mut self.link.node, &mut self.presence.handover) else {
            return true;
        };
        let has_entered = loop {
            let taken = exceptions.import(table, &imports);
            imports.drain(..taken);
            // Nothing is received, so there are no other changes.
            exceptions.turn(|_| true);
            if imports.is_empty() && exceptions.has_entered_all() {
                break true;
            } else if begin.elapsed() > ENTERING_MAX {
                break false;
            }
            std::thread::sleep(LOOK_INTERVAL);
        };
        self.presence.handover.imports = imports;
        has_entered
    }

    /// Opens the gate, in place of the predecessor, whose gate closed at `closed`.
    fn open(&mut self, closed: MachineTime) {
        self.presence.handover.gate.set_open(true);
        let refused = exceptions(&mut self.link.node, &mut self.presence.handover)
            .map_or(0, |successor| successor.refused_count());
        let ms = closed.elapsed_ms();
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

/// The exceptions of workers: the node's, or those of a balancer without peers.
fn exceptions<'a>(
    node: &'a mut Option<super::Node>,
    handover: &'a mut Handover,
) -> Option<&'a mut ExceptionMover> {
    match node {
        Some(node) => Some(&mut node.exceptions),
        None => handover.alone.as_mut(),
    }
}
