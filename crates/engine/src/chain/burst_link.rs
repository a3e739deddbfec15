//! A stage that sees bursts, in its place in a chain.

use super::{Down, Head, Inlet, Line, Passage, Place, settle, stage_name};
use crate::culprit::blame;
use hotloop_stage::{
    BURST_CAPACITY, Burst, BurstStage, Counters, Cx, DropReason, Output, Tally, Tick,
};
use std::sync::Arc;

/// A chain and one more stage, which takes bursts.
pub struct ThenBurst<H: Head, A: BurstStage<H::Out>> {
    head: H,
    body: Body<H::Out, A>,
}

struct Body<In, A: BurstStage<In>> {
    stage: A,
    input: Burst<In>,
    output: Burst<A::Out>,
    counters: Arc<Counters>,
    /// What the call at work has taken so far; settled and zero between calls.
    received: u64,
    /// What the call at work has given on so far; settled and zero between calls.
    tally: Tally,
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
            input: Burst::new(),
            output: Burst::new(),
            counters,
            received: 0,
            tally: Tally::default(),
            dropped_seen: 0,
            held_seen,
            abandoned: false,
        };
        Self { head, body }
    }
}

/// Which of the stage's calls is at work.
#[derive(Clone, Copy)]
enum Call {
    Process,
    Tick,
    Finish,
}

impl<In, A: BurstStage<In>> Body<In, A> {
    #[inline]
    fn call<K: Down<A::Out>>(&mut self, call: Call, now: Tick, down: &mut K) {
        let settled = SettleOnPanic(self);
        settled.0.work(call, now, down);
        settled.0.settle(false);
        std::mem::forget(settled);
        while let Some(item) = self.output.pop() {
            down.accept(item);
        }
    }

    #[inline]
    fn work<K: Down<A::Out>>(&mut self, call: Call, now: Tick, down: &mut K) {
        let mut spill = |burst: &mut Burst<A::Out>| {
            while let Some(item) = burst.pop() {
                down.accept(item);
            }
        };
        let mut out = Output::new(&mut self.output, &mut spill, &mut self.tally);
        let mut cx = Cx::new(&self.counters, now, 0);
        blame(stage_name::<A>, || match call {
            Call::Process => {
                self.received = self.input.len() as u64;
                self.stage.process(&mut cx, &mut self.input, &mut out);
                // What the stage left is neither emitted nor held: the settlement shows it.
                self.input.clear();
            }
            Call::Tick => self.stage.tick(&mut cx, &mut out),
            Call::Finish => self.stage.finish(&mut cx, &mut out),
        });
    }

    #[inline]
    fn settle(&mut self, unwinding: bool) {
        let dropped_sum = self.counters.dropped_sum();
        let held = self.stage.held() as u64;
        let tally = std::mem::take(&mut self.tally);
        let passage = Passage {
            // What a panic left in the input is still there, to be found by walking.
            received: std::mem::take(&mut self.received).saturating_sub(self.input.len() as u64),
            emitted: tally.emitted,
            created: tally.created,
            dropped: dropped_sum - self.dropped_seen,
            held_before: self.held_seen,
            held_after: held,
        };
        (self.dropped_seen, self.held_seen) = (dropped_sum, held);
        self.counters.created.add(tally.created);
        self.counters.held.set(held);
        settle(&self.counters, passage, unwinding);
    }
}

/// Settles a call that panics.
struct SettleOnPanic<'a, In, A: BurstStage<In>>(&'a mut Body<In, A>);

impl<In, A: BurstStage<In>> Drop for SettleOnPanic<'_, In, A> {
    fn drop(&mut self) {
        self.0.settle(true);
    }
}

struct BurstLink<'a, In, A: BurstStage<In>, K> {
    body: &'a mut Body<In, A>,
    now: Tick,
    down: &'a mut K,
}

impl<In, A: BurstStage<In>, K: Down<A::Out>> Down<In> for BurstLink<'_, In, A, K> {
    #[inline(always)]
    fn accept(&mut self, item: In) {
        self.body.input.push(item);
        if self.body.input.is_full() {
            self.body.call(Call::Process, self.now, self.down);
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        if !self.body.input.is_empty() {
            self.body.call(Call::Process, self.now, self.down);
        }
        self.down.flush();
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
        self.head.run(now, &mut BurstLink { body: &mut self.body, now, down });
    }

    fn tick<K: Down<A::Out>>(&mut self, now: Tick, down: &mut K) {
        self.head.tick(now, &mut BurstLink { body: &mut self.body, now, down });
        let emitted_before = self.body.counters.emitted.count();
        self.body.call(Call::Tick, now, down);
        if self.body.counters.emitted.count() != emitted_before {
            down.flush();
        }
    }

    fn finish<K: Down<A::Out>>(&mut self, now: Tick, down: &mut K) {
        self.head.finish(now, &mut BurstLink { body: &mut self.body, now, down });
        self.body.call(Call::Finish, now, down);
        down.flush();
    }

    fn in_flight(&self) -> usize {
        let body = &self.body;
        let held = if body.abandoned { 0 } else { body.stage.held() };
        self.head.in_flight() + body.input.len() + body.output.len() + held
    }

    fn in_flight_max(&self) -> usize {
        self.head.in_flight_max() + 2 * BURST_CAPACITY + self.body.stage.held_max()
    }

    /// What the stage holds stays with it, and is counted here and dropped with it.
    fn abandon(&mut self) {
        self.head.abandon();
        let body = &mut self.body;
        let (input, output) = (body.input.len() as u64, body.output.len() as u64);
        let counters = &body.counters;
        counters.received.add(input);
        counters.emitted.set(counters.emitted.count().saturating_sub(output));
        counters.panicked.add(input + output + body.held_seen);
        counters.held.set(0);
        body.held_seen = 0;
        body.input.clear();
        body.output.clear();
        body.abandoned = true;
    }

    fn lines(&self, lines: &mut Vec<Line>) {
        self.head.lines(lines);
        lines.push(Line::new(Place::Stage, stage_name::<A>(), &self.body.counters));
    }
}
