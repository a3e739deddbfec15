//! The control thread's loop.

use crate::common;
use crate::links::Links;
use crate::live::{self, Annotate, Sessions};
use crate::metrics::Metrics;
use crate::request::{Reply, Request};
use crate::socket::Socket;
use hotloop_engine::{Control, Waited};
use hotloop_load::Loads;
use std::time::{Duration, Instant};

/// The length of a turn of the control thread.
pub const TURN: Duration = Duration::from_millis(5);

/// Runs until SIGINT or SIGTERM, the end of `duration`, the end of every source, or a stage's
/// panic, and returns which it was. Meanwhile it answers clients of the socket: `status`,
/// `counters`, `xstats` and `capture`. Captures end with it.
///
/// A program with other commands, or other work on its control thread, uses [`Operation`].
pub fn operate(
    control: &Control<'_>,
    socket: Option<&mut Socket>,
    duration: Option<Duration>,
) -> Waited {
    let mut operation = Operation::new(control, socket, duration);
    loop {
        if let Some(waited) = operation.turn(&mut Request::unknown) {
            return waited;
        }
    }
}

/// The control thread's loop, a turn at a time:
///
/// ```no_run
/// use hotloop_engine::{Control, Waited};
/// use hotloop_ops::{Operation, Request, Socket};
/// use serde_json::{Value, json};
///
/// struct Balancer { weight: u64 }
///
/// impl Balancer {
///     fn answer(&mut self, request: &Request) -> Result<Value, String> {
///         match request.command.as_str() {
///             "weight" => {
///                 self.weight = request.arguments.as_u64().ok_or("give a weight, such as 3")?;
///                 Ok(json!(self.weight))
///             }
///             _ => request.unknown(),
///         }
///     }
///
///     fn publish(&mut self) { /* what else is to be done every few milliseconds */ }
/// }
///
/// /// What is given to `plan.run`.
/// fn steer(control: &Control<'_>, socket: &mut Socket, balancer: &mut Balancer) -> Waited {
///     let mut operation = Operation::new(control, Some(socket), None);
///     loop {
///         if let Some(waited) = operation.turn(&mut |request| balancer.answer(request)) {
///             return waited;
///         }
///         balancer.publish();
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Operation<'a> {
    control: &'a Control<'a>,
    socket: Option<&'a mut Socket>,
    metrics: Option<&'a mut Metrics>,
    end: Option<Instant>,
    links: Links,
    captures: Sessions,
    loads: Loads,
}

impl<'a> Operation<'a> {
    /// The loop of a run that ends after `duration`, if given. Without a socket there are no
    /// clients.
    #[must_use]
    pub fn new(
        control: &'a Control<'a>,
        socket: Option<&'a mut Socket>,
        duration: Option<Duration>,
    ) -> Self {
        let end = duration.and_then(|duration| Instant::now().checked_add(duration));
        let (links, loads) = (Links::of(control), Loads::of(control));
        Self { control, socket, metrics: None, end, links, captures: Sessions::default(), loads }
    }

    /// Answers scrapes too, with the metrics that every program has. A program that has more calls
    /// [`Metrics::answer`] itself, after each turn.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Option<&'a mut Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Sets the function that comments on each packet in a capture, beside the drop reason. It is
    /// called on the threads of captures.
    #[must_use]
    pub fn with_annotations(mut self, annotate: Annotate) -> Self {
        self.captures.annotate(annotate);
        self
    }

    /// Answers clients and scrapes, logs changes of links, then waits for [`TURN`], or less if the
    /// run ends before. Returns why the run ends, or `None` if it goes on.
    ///
    /// `status` and `counters` are answered from the engine's counts. `answer` handles all other
    /// commands, and ends with [`Request::unknown`]. Work that takes longer than a few milliseconds
    /// belongs in a [`Reply::later`].
    pub fn turn<R: Into<Reply>>(
        &mut self,
        answer: &mut dyn FnMut(&Request) -> R,
    ) -> Option<Waited> {
        let control = self.control;
        if let Some(socket) = &mut self.socket {
            let since = socket.since();
            let captures = &mut self.captures;
            socket.serve(&mut |request| match common::answer(control, since, request) {
                None if request.command == "capture" => {
                    live::begin(captures, control.taps(), request)
                }
                Some(common) => Reply::Now(Ok(common)),
                None => answer(request).into(),
            });
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.answer(control, &mut |_| {});
        }
        crate::watch::beat();
        self.links.turn();
        self.loads.turn(control);
        let now = Instant::now();
        let rest = self.end.map_or(TURN, |end| end.saturating_duration_since(now).min(TURN));
        match control.wait_for_signal_or(rest) {
            Waited::Elapsed if self.end.is_none_or(|end| Instant::now() < end) => None,
            waited => Some(waited),
        }
    }
}
