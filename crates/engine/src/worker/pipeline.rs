//! A graph with a boundary, some cores polling, others working.

use super::{Back, Devices, Front, Tally, Worker, polled_count};
use crate::chain::{self, Down, Ending, Head};
use crate::router::{Lanes, NoShard, Router, Shard};
use hotloop_stage::{Carries, Error, Facts, Source, Tick};

/// One core of a pipeline that polls and hands on.
pub struct Dispatcher<S, H: Head, K> {
    front: Front<S, H>,
    key: K,
    lanes: Lanes<H::Out>,
    now: Tick,
    done: bool,
}

impl<S, H: Head, K> Dispatcher<S, H, K> {
    pub(crate) const fn new(front: Front<S, H>, key: K, lanes: Lanes<H::Out>) -> Self {
        Self { front, key, lanes, now: Tick::from_ns(0), done: false }
    }
}

impl<S, H, K, I> Worker for Dispatcher<S, H, K>
where
    S: Source<Item: Carries>,
    H: Head<In = S::Item, Out: Carries + Send>,
    K: Fn(&H::Out) -> I,
    I: Into<Shard>,
{
    fn start(&mut self, facts: &Facts) -> Result<(), Error> {
        self.front.source.start(facts)
    }

    #[inline]
    fn step(&mut self, now: Tick) -> usize {
        self.now = self.now.max(now);
        let room = if self.front.is_lossless() { self.lanes.room() } else { usize::MAX };
        let polled = self.front.poll(room);
        let mut router = Router::new(&self.key, &mut self.lanes, NoShard);
        self.front.run(&mut self.now, &mut router);
        self.front.chain.tick(self.now, &mut router);
        polled
    }

    fn stop(&mut self) {
        self.front.stop();
    }

    fn drain(&mut self, now: Tick) -> bool {
        if !self.done {
            self.step(now);
            let mut router = Router::new(&self.key, &mut self.lanes, NoShard);
            self.front.chain.finish(self.now, &mut router);
            router.flush();
            self.lanes.close();
            self.done = true;
        }
        true
    }

    fn abandon(&mut self) {
        self.front.abandon();
        self.lanes.abandon();
        self.lanes.close();
    }

    fn discard(&mut self) -> bool {
        true
    }

    fn is_exhausted(&self) -> bool {
        self.front.is_exhausted()
    }

    fn has_source(&self) -> bool {
        true
    }

    fn in_flight(&self) -> usize {
        self.front.chain.in_flight() + self.lanes.in_flight()
    }

    fn in_flight_max(&self) -> usize {
        self.front.chain.in_flight_max() + self.lanes.in_flight_max()
    }

    fn devices(&self) -> Devices {
        Devices { sources: Some(self.front.source.devices()), sinks: None }
    }

    fn lines(&self) -> Vec<chain::Line> {
        let mut lines = Vec::new();
        self.front.chain.lines(&mut lines);
        self.lanes.lines(&mut lines);
        lines
    }

    fn tally(&self) -> Tally {
        let polled = polled_count(&self.lines());
        let crossed = self.lanes.crossed_count();
        Tally { polled, received: polled, sent: crossed, transmitted: 0, crossed }
    }
}

/// One core of a pipeline that owns a shard.
pub struct ShardWorker<T: Head, Z> {
    back: Back<T, Z>,
    done: bool,
}

impl<T: Head, Z> ShardWorker<T, Z> {
    pub(crate) const fn new(back: Back<T, Z>) -> Self {
        Self { back, done: false }
    }
}

impl<T, Z> Worker for ShardWorker<T, Z>
where
    T: Head<In: Carries>,
    Z: Ending<Item = T::Out>,
{
    fn start(&mut self, facts: &Facts) -> Result<(), Error> {
        self.back.end.start(facts)
    }

    #[inline]
    fn step(&mut self, now: Tick) -> usize {
        self.back.step(now)
    }

    fn maintain(&mut self) {
        self.back.end.maintain();
    }

    fn stop(&mut self) {}

    fn drain(&mut self, now: Tick) -> bool {
        if !self.done && self.step(now) == 0 && self.back.is_dry() {
            self.back.finish();
            self.done = true;
        }
        self.done
    }

    fn abandon(&mut self) {
        self.back.abandon();
    }

    fn discard(&mut self) -> bool {
        self.back.discard()
    }

    fn is_exhausted(&self) -> bool {
        false
    }

    fn has_source(&self) -> bool {
        false
    }

    fn in_flight(&self) -> usize {
        self.back.in_flight()
    }

    fn in_flight_max(&self) -> usize {
        self.back.in_flight_max()
    }

    fn devices(&self) -> Devices {
        Devices { sources: None, sinks: Some(self.back.end.devices()) }
    }

    fn lines(&self) -> Vec<chain::Line> {
        let mut lines = Vec::new();
        self.back.chain.lines(&mut lines);
        self.back.end.lines(&mut lines);
        lines
    }

    fn tally(&self) -> Tally {
        let received = polled_count(&self.lines());
        let sent = self.back.end.sent_count();
        Tally { polled: 0, received, sent, transmitted: sent, crossed: 0 }
    }
}
