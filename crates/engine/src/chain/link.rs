//! A stage that sees packets singly, in its place in a chain.

use super::{Down, Head, Inlet, Line, Passage, Place, Spill, settle, stage_name};
use crate::culprit::blame;
use hotloop_stage::{BURST_CAPACITY, Burst, Counters, Cx, DropReason, Stage, Tick};
use std::marker::PhantomData;
use std::sync::Arc;

/// A chain and one more stage.
pub struct Then<H: Head, A> {
    head: H,
    stage: A,
    /// What waits for `prepare`; unused where the stage does not prepare.
    burst: Burst<H::Out>,
    counters: Arc<Counters>,
    /// Drops counted when the stage last settled.
    dropped_seen: u64,
}

impl<H: Head, A: Stage<H::Out>> Then<H, A> {
    pub(crate) fn new(head: H, stage: A) -> Self {
        let counters = Arc::new(Counters::new(A::Drop::NAMES));
        Self { head, stage, burst: Burst::new(), counters, dropped_seen: 0 }
    }
}

/// The stage at work: counts in registers, settles at the end of a burst, and when a stage below or
/// this one panics.
struct Work<'a, In, A: Stage<In>, K: Down<A::Out>> {
    stage: &'a mut A,
    counters: &'a Counters,
    dropped_seen: &'a mut u64,
    now: Tick,
    received: u64,
    emitted: u64,
    dropped: u64,
    down: &'a mut K,
    input: PhantomData<fn(In)>,
}

impl<In, A: Stage<In>, K: Down<A::Out>> Work<'_, In, A, K> {
    #[inline(always)]
    fn one(&mut self, item: In, index: usize) {
        self.received += 1;
        let mut cx = Cx::new(self.counters, self.now, index);
        let verdict = blame(stage_name::<A>, || self.stage.packet(&mut cx, item));
        self.dropped += cx.dropped_count();
        if let Ok(out) = verdict {
            self.emitted += 1;
            self.down.accept(out);
        }
    }

    #[inline(always)]
    fn prepared(&mut self, burst: &mut Burst<In>) {
        let mut cx = Cx::new(self.counters, self.now, 0);
        blame(stage_name::<A>, || self.stage.prepare(&mut cx, burst.as_slice()));
        self.dropped += cx.dropped_count();
        self.each_of(burst);
    }

    /// Works on each item of a burst.
    #[inline(always)]
    fn each_of(&mut self, burst: &mut Burst<In>) {
        let mut index = 0;
        let Self { stage, counters, now, received, emitted, dropped, down, .. } = self;
        let Some(landing) = down.landing(burst.len()) else {
            while let Some(item) = burst.pop() {
                self.one(item, index);
                index += usize::from(A::PREPARES);
            }
            return;
        };
        burst.map_into(landing, |item| {
            *received += 1;
            let mut cx = Cx::new(counters, *now, index);
            index += usize::from(A::PREPARES);
            let verdict = blame(stage_name::<A>, || stage.packet(&mut cx, item));
            *dropped += cx.dropped_count();
            *emitted += u64::from(verdict.is_ok());
            verdict.ok()
        });
        self.down.landed();
    }

    #[inline(always)]
    fn settle(&mut self) {
        let passage = Passage {
            received: std::mem::take(&mut self.received),
            emitted: std::mem::take(&mut self.emitted),
            dropped: std::mem::take(&mut self.dropped),
            ..Passage::default()
        };
        *self.dropped_seen += passage.dropped;
        settle(self.counters, passage, false);
    }

    /// After a panic: the drops of the packet that was at work were counted, but not here.
    #[cold]
    fn settle_unwinding(&mut self) {
        let dropped_sum = self.counters.dropped_sum();
        let passage = Passage {
            received: self.received,
            emitted: self.emitted,
            dropped: dropped_sum - *self.dropped_seen,
            ..Passage::default()
        };
        *self.dropped_seen = dropped_sum;
        settle(self.counters, passage, true);
    }
}

impl<In, A: Stage<In>, K: Down<A::Out>> Drop for Work<'_, In, A, K> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.received != 0 {
            self.settle_unwinding();
        }
    }
}

/// The stage in its place, with the burst in which it collects where it prepares.
struct Link<'a, In, A: Stage<In>, K: Down<A::Out>> {
    burst: &'a mut Burst<In>,
    work: Work<'a, In, A, K>,
}

impl<In, A: Stage<In>, K: Down<A::Out>> Down<In> for Link<'_, In, A, K> {
    #[inline(always)]
    fn accept(&mut self, item: In) {
        if A::PREPARES {
            self.burst.push(item);
            if self.burst.is_full() {
                self.work.prepared(self.burst);
            }
        } else {
            self.work.one(item, 0);
        }
    }

    /// Where nothing waits, a burst is prepared where it lies.
    #[inline(always)]
    fn accept_burst(&mut self, burst: &mut Burst<In>) {
        if !A::PREPARES {
            self.work.each_of(burst);
        } else if !self.burst.is_empty() {
            while let Some(item) = burst.pop() {
                self.accept(item);
            }
        } else if !burst.is_empty() {
            self.work.prepared(burst);
        }
    }

    #[inline(always)]
    fn fill(&mut self, spare: &mut Burst<In>, fill: impl FnOnce(&mut Burst<In>, Spill<'_, In>)) {
        let Self { burst, work } = self;
        if A::PREPARES {
            fill(burst, &mut |burst| work.prepared(burst));
        } else {
            fill(spare, &mut |burst| work.each_of(burst));
            work.each_of(spare);
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        if A::PREPARES && !self.burst.is_empty() {
            self.work.prepared(self.burst);
        }
        self.work.settle();
        self.work.down.flush();
    }
}

impl<H: Head, A: Stage<H::Out>> Then<H, A> {
    #[inline(always)]
    fn with_link<K: Down<A::Out>>(
        &mut self,
        now: Tick,
        down: &mut K,
        run: impl FnOnce(&mut H, &mut Link<'_, H::Out, A, K>),
    ) {
        let work = Work {
            stage: &mut self.stage,
            counters: &self.counters,
            dropped_seen: &mut self.dropped_seen,
            now,
            received: 0,
            emitted: 0,
            dropped: 0,
            down,
            input: PhantomData,
        };
        run(&mut self.head, &mut Link { burst: &mut self.burst, work });
    }
}

impl<H: Head, A: Stage<H::Out>> Head for Then<H, A> {
    type In = H::In;
    type Out = A::Out;

    #[inline(always)]
    fn inlet(&mut self) -> &mut Inlet<H::In> {
        self.head.inlet()
    }

    #[inline(always)]
    fn run<K: Down<A::Out>>(&mut self, now: Tick, down: &mut K) {
        self.with_link(now, down, |head, link| head.run(now, link));
    }

    #[inline(always)]
    fn tick<K: Down<A::Out>>(&mut self, now: Tick, down: &mut K) {
        self.with_link(now, down, |head, link| head.tick(now, link));
        let mut cx = Cx::new(&self.counters, now, 0);
        blame(stage_name::<A>, || self.stage.tick(&mut cx));
        if cx.dropped_count() > 0 {
            // A stage that sees packets singly has none to drop here.
            self.dropped_seen += cx.dropped_count();
            self.counters.uncreated.add(cx.dropped_count());
        }
    }

    fn finish<K: Down<A::Out>>(&mut self, now: Tick, down: &mut K) {
        self.with_link(now, down, |head, link| head.finish(now, link));
    }

    fn in_flight(&self) -> usize {
        self.head.in_flight() + self.burst.len()
    }

    fn in_flight_max(&self) -> usize {
        self.head.in_flight_max() + if A::PREPARES { BURST_CAPACITY } else { 1 }
    }

    fn abandon(&mut self) {
        self.head.abandon();
        self.counters.received.add(self.burst.len() as u64);
        self.counters.panicked.add(self.burst.len() as u64);
        self.burst.clear();
    }

    fn lines(&self, lines: &mut Vec<Line>) {
        self.head.lines(lines);
        lines.push(Line::new(Place::Stage, stage_name::<A>(), &self.counters));
    }
}
