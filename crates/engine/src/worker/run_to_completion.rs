//! A graph with a boundary, each core doing everything for its own queues.

use super::back::OwnShard;
use super::{Back, Devices, Front, Tally, Worker, polled_count};
use crate::chain::{self, Ending, Head};
use crate::router::{Lanes, Router, Shard};
use hotloop_stage::{Carries, Error, Facts, Source, Tick};

/// How far a core has come in ending.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ends {
    Running,
    FrontDone,
    Done,
}

/// One core that polls, and owns a shard: run-to-completion of a graph with a boundary.
pub struct RunToCompletion<S, H: Head, K, T: Head<In = H::Out>, Z> {
    index: usize,
    front: Front<S, H>,
    key: K,
    lanes: Lanes<H::Out>,
    back: Back<T, Z>,
    now: Tick,
    ends: Ends,
}

impl<S, H: Head, K, T: Head<In = H::Out>, Z> RunToCompletion<S, H, K, T, Z> {
    pub(crate) const fn new(
        index: usize,
        front: Front<S, H>,
        key: K,
        lanes: Lanes<H::Out>,
        back: Back<T, Z>,
    ) -> Self {
        Self { index, front, key, lanes, back, now: Tick::from_ns(0), ends: Ends::Running }
    }
}

/// Runs `$work` with the front and a router into lanes and the core's own shard.
macro_rules! with_router {
    ($self:ident, |$front:ident, $now:ident, $router:ident| $work:expr) => {{
        let own = OwnShard { worker: $self.index, back: &mut $self.back };
        let mut router = Router::new(&$self.key, &mut $self.lanes, own);
        let ($front, $now, $router) = (&mut $self.front, &mut $self.now, &mut router);
        $work
    }};
}

impl<S, H, K, I, T, Z> Worker for RunToCompletion<S, H, K, T, Z>
where
    S: Source<Item: Carries>,
    H: Head<In = S::Item, Out: Carries + Send>,
    K: Fn(&H::Out) -> I,
    I: Into<Shard>,
    T: Head<In = H::Out>,
    Z: Ending<Item = T::Out>,
{
    fn start(&mut self, facts: &Facts) -> Result<(), Error> {
        self.front.source.start(facts)?;
        self.back.end.start(facts)
    }

    #[inline]
    fn step(&mut self, now: Tick) -> usize {
        self.now = self.now.max(now);
        self.back.set_now(now);
        let room = if self.front.is_lossless() { self.lanes.room() } else { usize::MAX };
        let polled = self.front.poll(room);
        with_router!(self, |front, now, router| {
            front.run(now, router);
            front.chain.tick(*now, router);
        });
        polled + self.back.step(now)
    }

    fn maintain(&mut self) {
        self.back.end.maintain();
    }

    fn stop(&mut self) {
        self.front.stop();
    }

    fn drain(&mut self, now: Tick) -> bool {
        match self.ends {
            Ends::Running => {
                self.step(now);
                with_router!(self, |front, now, router| front.chain.finish(*now, router));
                self.lanes.close();
                self.ends = Ends::FrontDone;
            }
            // What came before its end must not run again: the rings it would fill are closed.
            Ends::FrontDone => {
                if self.back.step(now) == 0 && self.back.is_dry() {
                    self.back.finish();
                    self.ends = Ends::Done;
                }
            }
            Ends::Done => {}
        }
        self.ends == Ends::Done
    }

    fn abandon(&mut self) {
        with_router!(self, |front, _now, router| {
            router.take_back();
            front.abandon();
        });
        self.lanes.abandon();
        self.lanes.close();
        self.back.abandon();
    }

    fn discard(&mut self) -> bool {
        self.back.discard()
    }

    fn is_exhausted(&self) -> bool {
        self.front.is_exhausted()
    }

    fn has_source(&self) -> bool {
        true
    }

    fn in_flight(&self) -> usize {
        self.front.chain.in_flight() + self.lanes.in_flight() + self.back.in_flight()
    }

    fn in_flight_max(&self) -> usize {
        self.front.chain.in_flight_max() + self.lanes.in_flight_max() + self.back.in_flight_max()
    }

    fn devices(&self) -> Devices {
        let sources = Some(self.front.source.devices());
        Devices { sources, sinks: Some(self.back.end.devices()) }
    }

    fn lines(&self) -> Vec<chain::Line> {
        let mut lines = Vec::new();
        self.front.chain.lines(&mut lines);
        self.lanes.lines(&mut lines);
        self.back.chain.lines(&mut lines);
        self.back.end.lines(&mut lines);
        lines
    }

    fn tally(&self) -> Tally {
        let polled = polled_count(&self.lines());
        let (sent, crossed) = (self.back.end.sent_count(), self.lanes.crossed_count());
        Tally { polled, received: polled, sent, transmitted: sent, crossed }
    }
}
