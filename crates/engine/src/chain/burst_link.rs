//! A stage that sees bursts, in its place in a chain.

use super::{Down, Head, Inlet, Line, Passage, Place, Spill, settle, stage_name};
use crate::culprit::blame;
use hotloop_stage::{
    BURST_CAPACITY, Burst, BurstStage, Counters, Cx, DropReason, Output, Tally, Tick,
};
use std::sync::Arc;

/// A chain and one more stage, which takes bursts.
pub struct ThenBurst<H: Head, A: BurstStage<H::Out>> {
    head: H,
    /// What waits until a burst is whole; unused where bursts come as such.
    input: Burst<H::Out>,
    body: Body<A, A::Out>,
}

struct Body<A, Out> {
    stage: A,
    /// What the stage gives on, where what is behind it has no burst to put it in.
    output: Burst<Out>,
    counters: Arc<Counters>,
    /// What the call at work has given on so far; settled and zero between calls.
    tally: Tally,
    /// Drops counted when the stage last settled.
    dropped_seen: u64,
    held_seen: u64,
    /// Whether what the stage holds has been counted as lost to a panic.
    abandoned: bool,
}

impl<H: Head, A: BurstStage<H::Out>> ThenBurst<H, A> {
    pub(crate) fn new(head: H, stage: A) -> Self {
        let counters = Arc::new(Counters::new(A::Drop::NAMES));
        let held_seen = stage.held() as u64;
        let body = Body {
            stage,
            output: Burst::new(),
            counters,
            tally: Tally::default(),
            dropped_seen: 0,
            held_seen,
            abandoned: false,
        };
        Self { head, input: Burst::new(), body }
    }
}

/// A call of the stage. Its drop settles one that panics.
struct Work<'a, In, A: BurstStage<In>> {
    body: &'a mut Body<A, A::Out>,
    /// What the stage takes from; empty in a call that gives it no packets.
    input: &'a mut Burst<In>,
    offered: usize,
}

impl<'a, In, A: BurstStage<In>> Work<'a, In, A> {
    #[inline(always)]
    fn new(body: &'a mut Body<A, A::Out>, input: &'a mut Burst<In>) -> Self {
        let offered = input.len();
        Self { body, input, offered }
    }

    #[inline(always)]
    fn process<K: Down<A::Out>>(self, now: Tick, down: &mut K) {
        self.run(now, down, |stage, cx, input, out| stage.process(cx, input, out));
    }

    /// Does `call`, and says whether the stage gave anything on.
    #[inline(always)]
    fn run<K: Down<A::Out>>(
        mut self,
        now: Tick,
        down: &mut K,
        call: impl FnOnce(&mut A, &mut Cx<'_, A::Drop>, &mut Burst<In>, &mut Output<'_, A::Out>),
    ) -> bool {
        let Self { body, input, .. } = &mut self;
        let Body { stage, output, counters, tally, .. } = &mut **body;
        let mut cx = Cx::new(counters, now, 0);
        down.fill(output, |burst, spill| {
            let mut out = Output::new(burst, spill, tally);
            blame(stage_name::<A>, || call(stage, &mut cx, input, &mut out));
        });
        // What the stage left is neither emitted nor held: the settlement shows it.
        input.clear();
        let dropped = cx.dropped_count();
        let has_emitted = self.body.tally.emitted != 0;
        self.body.settle::<In>(self.offered, dropped, false);
        std::mem::forget(self);
        has_emitted
    }
}

impl<In, A: BurstStage<In>> Drop for Work<'_, In, A> {
    /// The drops of the call were counted, but not here. What is left in the input is still there,
    /// to be found by walking.
    #[cold]
    fn drop(&mut self) {
        let dropped = self.body.counters.dropped_sum() - self.body.dropped_seen;
        let received = self.offered.saturating_sub(self.input.len());
        self.body.settle::<In>(received, dropped, true);
    }
}

impl<A, Out> Body<A, Out> {
    #[inline(always)]
    fn settle<In>(&mut self, received: usize, dropped: u64, unwinding: bool)
    where
        A: BurstStage<In>,
    {
        let held = self.stage.held() as u64;
        let tally = std::mem::take(&mut self.tally);
        let passage = Passage {
            received: received as u64,
            emitted: tally.emitted,
            created: tally.created,
            dropped,
            held_before: std::mem::replace(&mut self.held_seen, held),
            held_after: held,
        };
        self.dropped_seen += dropped;
        self.counters.created.add(tally.created);
        self.counters.held.set(held);
        settle(&self.counters, passage, unwinding);
    }
}

struct BurstLink<'a, In, A: BurstStage<In>, K> {
    input: &'a mut Burst<In>,
    body: &'a mut Body<A, A::Out>,
    now: Tick,
    down: &'a mut K,
}

impl<In, A: BurstStage<In>, K: Down<A::Out>> BurstLink<'_, In, A, K> {
    #[inline(always)]
    fn process(&mut self) {
        Work::new(self.body, self.input).process(self.now, self.down);
    }
}

impl<In, A: BurstStage<In>, K: Down<A::Out>> Down<In> for BurstLink<'_, In, A, K> {
    #[inline(always)]
    fn accept(&mut self, item: In) {
        self.input.push(item);
        if self.input.is_full() {
            self.process();
        }
    }

    /// Where nothing waits, a burst is processed where it lies.
    #[inline(always)]
    fn accept_burst(&mut self, burst: &mut Burst<In>) {
        if !self.input.is_empty() {
            while let Some(item) = burst.pop() {
                self.accept(item);
            }
        } else if !burst.is_empty() {
            Work::new(self.body, burst).process(self.now, self.down);
        }
    }

    #[inline(always)]
    fn fill(&mut self, _: &mut Burst<In>, fill: impl FnOnce(&mut Burst<In>, Spill<'_, In>)) {
        let Self { input, body, now, down } = self;
        fill(input, &mut |input| Work::new(body, input).process(*now, *down));
    }

    #[inline(always)]
    fn flush(&mut self) {
        if !self.input.is_empty() {
            self.process();
        }
        self.down.flush();
    }
}

impl<H: Head, A: BurstStage<H::Out>> ThenBurst<H, A> {
    #[inline(always)]
    fn with_link<K: Down<A::Out>>(
        &mut self,
        now: Tick,
        down: &mut K,
        run: impl FnOnce(&mut H, &mut BurstLink<'_, H::Out, A, K>),
    ) {
        let Self { head, input, body } = self;
        run(head, &mut BurstLink { input, body, now, down });
    }
}

impl<H: Head, A: BurstStage<H::Out>> Head for ThenBurst<H, A> {
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
        let work = Work::new(&mut self.body, &mut self.input);
        if work.run(now, down, |stage, cx, _, out| stage.tick(cx, out)) {
            down.flush();
        }
    }

    fn finish<K: Down<A::Out>>(&mut self, now: Tick, down: &mut K) {
        self.with_link(now, down, |head, link| head.finish(now, link));
        let work = Work::new(&mut self.body, &mut self.input);
        work.run(now, down, |stage, cx, _, out| stage.finish(cx, out));
        down.flush();
    }

    fn in_flight(&self) -> usize {
        let body = &self.body;
        let held = if body.abandoned { 0 } else { body.stage.held() };
        self.head.in_flight() + self.input.len() + body.output.len() + held
    }

    fn in_flight_max(&self) -> usize {
        self.head.in_flight_max() + 2 * BURST_CAPACITY + self.body.stage.held_max()
    }

    /// What the stage holds stays with it, and is counted here and dropped with it.
    fn abandon(&mut self) {
        self.head.abandon();
        let body = &mut self.body;
        let (input, output) = (self.input.len() as u64, body.output.len() as u64);
        let counters = &body.counters;
        counters.received.add(input);
        counters.emitted.set(counters.emitted.count().saturating_sub(output));
        counters.panicked.add(input + output + body.held_seen);
        counters.held.set(0);
        body.held_seen = 0;
        self.input.clear();
        body.output.clear();
        body.abandoned = true;
    }

    fn lines(&self, lines: &mut Vec<Line>) {
        self.head.lines(lines);
        lines.push(Line::new(Place::Stage, stage_name::<A>(), &self.body.counters));
    }
}
