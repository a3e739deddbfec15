//! The control thread's loop.

use crate::common;
use crate::hangup::hangup_came;
use crate::links::Links;
use crate::live::{self, Sessions};
use crate::metrics::Metrics;
use crate::request::Reply;
use crate::socket::Socket;
use crate::steer::Steer;
use hotloop_engine::{Control, Waited};
use hotloop_load::Loads;
use std::time::{Duration, Instant};

/// The length of a turn of the control thread.
pub const TURN: Duration = Duration::from_millis(5);

/// The control thread's loop, for a program that starts its run itself, by [`run`](crate::run) or
/// [`Plan::run`](hotloop_engine::Plan::run). `RunArgs::run_with` is all that others need.
#[derive(Debug, Default)]
pub struct Operation<'a> {
    /// The socket for clients.
    pub socket: Option<&'a mut Socket>,
    /// The server of metrics.
    pub metrics: Option<&'a mut Metrics>,
    /// The time after which the run ends; `None` for no end.
    pub duration: Option<Duration>,
}

impl Operation<'_> {
    /// Runs until SIGINT or SIGTERM, the end of the duration, the end of every source, or a stage's
    /// panic, and returns which it was; [`Waited::Elapsed`] if `steer` [is
    /// over](Steer::is_over) before. Meanwhile it answers clients and scrapes, logs changes of
    /// links, and calls `steer`.
    ///
    /// `status`, `counters`, `load`, `xstats` and `capture` are answered from the engine's counts and
    /// packets, all other commands by `steer`. Captures end with the loop.
    pub fn run(self, control: &Control<'_>, steer: &mut impl Steer) -> Waited {
        let end = self.duration.and_then(|duration| Instant::now().checked_add(duration));
        let mut turns = Turns::new(self, control, steer);
        let mut waited = None;
        let waited = loop {
            steer.turn(control);
            match waited {
                Some(waited) => break waited,
                None if steer.is_over() => break Waited::Elapsed,
                None => {}
            }
            turns.serve(steer);
            let now = Instant::now();
            let rest = end.map_or(TURN, |end| end.saturating_duration_since(now).min(TURN));
            waited = match control.wait_for_signal_or(rest) {
                Waited::Elapsed if end.is_none_or(|end| Instant::now() < end) => None,
                waited => Some(waited),
            };
        };
        let end = Instant::now().checked_add(steer.end());
        while end.is_none_or(|end| Instant::now() < end)
            && control.wait_for(TURN) == Waited::Elapsed
        {
            turns.serve(steer);
            steer.turn(control);
        }
        waited
    }
}

/// The loop's own part of each turn.
struct Turns<'a> {
    operation: Operation<'a>,
    control: &'a Control<'a>,
    links: Links,
    captures: Sessions,
    loads: Loads,
}

impl<'a> Turns<'a> {
    fn new(operation: Operation<'a>, control: &'a Control<'a>, steer: &impl Steer) -> Self {
        let mut captures = Sessions::default();
        steer.annotate().into_iter().for_each(|annotate| captures.annotate(annotate));
        let (links, loads) = (Links::of(control), Loads::of(control));
        Self { operation, control, links, captures, loads }
    }

    /// Answers clients and scrapes, passes SIGHUP on, and logs changes of links.
    fn serve(&mut self, steer: &mut impl Steer) {
        let Self { operation: Operation { socket, metrics, .. }, control, captures, .. } = self;
        if let Some(socket) = socket {
            let since = socket.since();
            socket.serve(&mut |request| match common::answer(control, since, request) {
                None if request.command == "capture" => {
                    live::begin(captures, control.taps(), request)
                }
                Some(common) => common.into(),
                None => {
                    let answered = steer.answer(control, request);
                    answered.unwrap_or_else(|error| Reply::Now(Err(error)))
                }
            });
        }
        if hangup_came() {
            steer.hangup();
        }
        if let Some(metrics) = metrics {
            metrics.answer(control, &mut |scrape| steer.metrics(scrape));
        }
        crate::watch::beat();
        self.links.turn();
        self.loads.turn(control);
    }
}
