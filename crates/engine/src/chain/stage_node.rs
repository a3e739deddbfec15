//! A stage as a node of a chain.

use super::node::{Node, pass_on};
use crate::node_info::NodeInfo;
use crate::panic_origin::record;
use crate::settle::{BurstCounts, abandon_emitted, settle};
use crate::turn::TurnContext;
use hotloop_stage::{
    BURST_CAPACITY, Burst, BurstStage, Counters, Cx, DropReason, Gauge, Output, Stage, Tally,
};
use hotloop_watch::{Place, PlaceKind};
use std::marker::PhantomData;
use std::sync::Arc;

/// A stage and the nodes after it.
pub struct StageNode<In, A: BurstStage<In>, D> {
    work: Work<In, A>,
    down: D,
}

/// The stage with its counters, and the packets that it has emitted and that were not passed on
/// yet.
struct Work<In, A: BurstStage<In>> {
    stage: A,
    output: Burst<A::Out>,
    name: String,
    number: u32,
    group: usize,
    counters: Arc<Counters>,
    /// Drops counted when the stage last settled.
    dropped_seen: u64,
    held_seen: u64,
    is_finished: bool,
    /// Whether the packets that the stage holds have been counted as lost to a panic.
    is_abandoned: bool,
    input: PhantomData<fn(In)>,
}

impl<In, A: BurstStage<In>, D: Node<A::Out>> StageNode<In, A, D> {
    pub fn new(stage: A, name: String, group: usize, down: D) -> Self {
        let counters = Arc::new(Counters::new(A::Drop::NAMES));
        let held_seen = stage.held() as u64;
        counters.held.set(held_seen);
        let work = Work {
            stage,
            output: Burst::new(),
            name,
            number: 0,
            group,
            counters,
            dropped_seen: 0,
            held_seen,
            is_finished: false,
            is_abandoned: false,
            input: PhantomData,
        };
        Self { work, down }
    }

    /// Calls `method` of the stage, and passes on the packets that it emits.
    #[inline(always)]
    fn call(&mut self, context: TurnContext<'_>, method: Method<'_, In>) {
        let Self { work, down } = self;
        let is_process = matches!(method, Method::Process(_));
        if is_process {
            context.watch.enter(work.number)
        } else {
            context.watch.tick(work.number)
        }
        let (input, is_end) = match method {
            Method::Process(input) => (Some(input), false),
            Method::Tick => (None, false),
            Method::Finish => (None, true),
        };
        let offered = input.as_ref().map_or(0, |input| input.len());
        let mut call = Call { work, input, offered, tally: Tally::default() };
        let Work { stage, output, counters, .. } = &mut *call.work;
        let mut cx = Cx::new(counters, context.now);
        let mut spill = |full: &mut Burst<A::Out>| pass_on(down, context, full);
        let mut out = Output::new(output, &mut spill, &mut call.tally);
        match &mut call.input {
            Some(input) => {
                stage.process(&mut cx, input, &mut out);
                // Packets that the stage left are neither emitted nor held: the settlement shows
                // it.
                if !input.is_empty() {
                    drop_left(input);
                }
            }
            None if is_end => stage.finish(&mut cx, &mut out),
            None => stage.tick(&mut cx, &mut out),
        }
        drop(out);
        let dropped = cx.dropped_count();
        if is_process || !call.is_idle(dropped) {
            call.settle(offered, dropped, false);
        }
        std::mem::forget(call);
        match &mut self.work.output {
            output if output.is_empty() => {}
            output if is_process => self.down.accept(context, output),
            output => pass_on(&mut self.down, context, output),
        }
    }
}

#[cold]
fn drop_left<In>(input: &mut Burst<In>) {
    drop(std::mem::take(input));
}

/// A method of a stage.
enum Method<'a, In> {
    Process(&'a mut Burst<In>),
    Tick,
    Finish,
}

/// A call of the stage. The drop settles the call if the stage panics.
struct Call<'a, In, A: BurstStage<In>> {
    work: &'a mut Work<In, A>,
    /// The stage's input, in a call that offers packets.
    input: Option<&'a mut Burst<In>>,
    offered: usize,
    tally: Tally,
}

impl<In, A: BurstStage<In>> Call<'_, In, A> {
    /// Whether a call that offered no packets has changed no count.
    #[inline(always)]
    fn is_idle(&self, dropped: u64) -> bool {
        let has_held = self.work.stage.held() as u64 != self.work.held_seen;
        self.tally.emitted == 0 && dropped == 0 && !has_held
    }

    #[inline(always)]
    fn settle(&mut self, received: usize, dropped: u64, unwinding: bool) {
        let work = &mut *self.work;
        let held = work.stage.held() as u64;
        let counts = BurstCounts {
            received: received as u64,
            emitted: self.tally.emitted,
            created: self.tally.created,
            dropped,
            held_before: work.held_seen,
            held_after: held,
        };
        work.dropped_seen += dropped;
        if counts.created != 0 {
            work.counters.created.add(counts.created);
        }
        if held != work.held_seen {
            work.held_seen = held;
            work.counters.held.set(held);
        }
        settle(&work.counters, counts, unwinding);
    }
}

impl<In, A: BurstStage<In>> Drop for Call<'_, In, A> {
    /// The drops of the call are counted, but not settled. Packets that it has not taken are left
    /// in the input.
    #[cold]
    fn drop(&mut self) {
        record(&self.work.name);
        let dropped = self.work.counters.dropped_sum() - self.work.dropped_seen;
        let left = self.input.as_ref().map_or(0, |input| input.len());
        let received = self.offered.saturating_sub(left);
        self.settle(received, dropped, true);
    }
}

impl<In, A: BurstStage<In>, D: Node<A::Out>> Node<In> for StageNode<In, A, D> {
    #[inline(always)]
    fn accept(&mut self, context: TurnContext<'_>, burst: &mut Burst<In>) {
        self.call(context, Method::Process(burst));
    }

    #[inline(always)]
    fn turn(&mut self, context: TurnContext<'_>) -> usize {
        self.call(context, Method::Tick);
        self.down.turn(context)
    }

    fn close(&mut self, context: TurnContext<'_>) -> bool {
        if !std::mem::replace(&mut self.work.is_finished, true) {
            self.call(context, Method::Finish);
        }
        self.down.close(context)
    }

    fn room(&mut self) -> usize {
        self.down.room() / self.work.stage.growth_max().max(1)
    }

    fn visit(&mut self, see: &mut dyn FnMut(&mut dyn NodeInfo)) {
        see(&mut self.work);
        self.down.visit(see);
    }
}

impl<In, A: BurstStage<In>> NodeInfo for Work<In, A> {
    fn place(&self) -> Place {
        let gauges = self.stage.gauges();
        Place { gauges, ..Place::new(PlaceKind::Stage, self.group, &self.name, &self.counters) }
    }

    fn set_number(&mut self, number: u32) {
        self.number = number;
    }

    fn in_flight(&self) -> usize {
        let held = if self.is_abandoned { 0 } else { self.stage.held() };
        self.output.len() + held
    }

    fn in_flight_max(&self) -> usize {
        BURST_CAPACITY + self.stage.held_max()
    }

    fn has_work(&self) -> bool {
        self.stage.has_work()
    }

    /// Packets that the stage holds stay there, are counted here, and are dropped with the stage.
    fn abandon(&mut self) {
        abandon_emitted(&self.counters, &mut self.output);
        self.counters.panicked.add(std::mem::take(&mut self.held_seen));
        self.counters.held.set(0);
        self.is_abandoned = true;
    }
}

/// Adapts a stage that takes packets one by one to bursts.
pub struct PerPacket<A>(pub A);

impl<In, A: Stage<In>> BurstStage<In> for PerPacket<A> {
    type Out = A::Out;
    type Drop = A::Drop;

    #[inline(always)]
    fn process(
        &mut self,
        cx: &mut Cx<'_, A::Drop>,
        input: &mut Burst<In>,
        out: &mut Output<'_, A::Out>,
    ) {
        out.map(input, |packet| self.0.packet(cx, packet).ok());
    }

    #[inline(always)]
    fn tick(&mut self, cx: &mut Cx<'_, A::Drop>, _: &mut Output<'_, A::Out>) {
        self.0.tick(cx);
    }

    fn gauges(&self) -> Vec<Gauge> {
        self.0.gauges()
    }
}

/// The default name of a stage: its type, without modules and parameters.
pub fn stage_name<A>() -> String {
    let full = std::any::type_name::<A>();
    let bare = full.split('<').next().unwrap_or(full);
    bare.rsplit("::").next().unwrap_or(bare).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Route<T>(T);

    #[test]
    fn a_stage_is_named_by_its_bare_type() {
        assert_eq!(stage_name::<Route<std::sync::Arc<u8>>>(), "Route");
        assert_eq!(stage_name::<hotloop_stage::Each<fn(), ()>>(), "Each");
        assert_eq!(Route(1).0, 1);
    }
}
