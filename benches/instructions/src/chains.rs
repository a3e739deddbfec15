//! Whole graphs on one core, from source to sink: a call is one burst.

use std::cell::RefCell;

use crate::Case;
use crate::buffer::Buffer;
use hotloop::engine::{Graph, Plan};
use hotloop::packet::build::udp;
use hotloop::prelude::*;
use hotloop::stage::{Instant, drop_reasons};

pub const FRAME_BYTES: usize = 60;

thread_local! {
    /// The packets that are in no burst or stage.
    static TANK: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// The cases of this module.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for burst in [32, 64] {
        let io = move |calls| play(calls, burst, source(receive(burst)).sink(send));
        cases.push((format!("graph io, burst of {burst}"), Box::new(io)));
        let swap = move |calls| play(calls, burst, source(receive(burst)).stage(swap).sink(send));
        cases.push((format!("graph macswap, burst of {burst}"), Box::new(swap)));
    }
    let never = |calls| {
        let graph = source(receive(32)).stage(pass).stage(pass).stage(pass).stage(pass);
        play(calls, 32, graph.stage(pass).sink(send));
    };
    cases.push(("graph of five stages that never drop, burst of 32".into(), Box::new(never)));
    let may = |calls| {
        let graph = source(receive(32)).stage(check).stage(check).stage(check).stage(check);
        play(calls, 32, graph.stage(check).sink(send));
    };
    cases.push(("graph of five stages that may drop, burst of 32".into(), Box::new(may)));
    let bursts = |calls| {
        let graph = source(receive(32)).burst_stage(bulk).burst_stage(bulk).burst_stage(bulk);
        play(calls, 32, graph.burst_stage(bulk).burst_stage(bulk).sink(send));
    };
    cases.push(("graph of five burst stages, burst of 32".into(), Box::new(bursts)));
    cases
}

/// Steps the only core of `graph` `calls` times.
fn play(calls: usize, burst: usize, graph: impl Graph) {
    fill_tank(burst, &udp().payload([0; FRAME_BYTES - 42]).build());
    let plan: Plan<_> =
        Engine::plan(graph, Deployment::run_to_completion(1)).expect("a deployment of one core");
    let mut assembly = plan.assemble().expect("a graph in memory");
    for _ in 0..calls {
        assert_eq!(assembly.step(0, Instant::from_ns(1)), burst);
    }
    let report = assembly.finish(Instant::from_ns(1));
    assert!(report.is_whole(), "{report}");
}

/// Fills the tank with `count` copies of `frame`, which has [`FRAME_BYTES`] bytes.
pub fn fill_tank(count: usize, frame: &[u8]) {
    TANK.with_borrow_mut(|tank| {
        tank.clear();
        tank.resize_with(count, || {
            let mut buffer = Buffer::new();
            *buffer.begin(FRAME_BYTES) = [0; FRAME_BYTES];
            buffer.data_mut().copy_from_slice(frame);
            buffer
        });
    });
}

/// Moves the tank's packets into a burst, and calls `change` for each.
#[inline(always)]
pub fn take_from_tank(burst: &mut Burst<Buffer>, mut change: impl FnMut(&mut Buffer)) {
    TANK.with_borrow_mut(|tank| {
        let ready = |mut buffer: Buffer| {
            change(&mut buffer);
            buffer
        };
        burst.extend(std::iter::from_fn(|| tank.pop()).map(ready));
    });
}

fn receive(burst: usize) -> impl Fn(&Core) -> Result<FromTank, hotloop::Error> {
    move |_| Ok(FromTank(burst))
}

fn send(_: &Core) -> Result<IntoTank, hotloop::Error> {
    Ok(IntoTank)
}

/// Takes this many packets at a time from the tank, until it is stopped.
struct FromTank(usize);

impl Source for FromTank {
    type Item = Buffer;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<Buffer>) -> usize {
        TANK.with_borrow_mut(|tank| {
            burst.extend((0..self.0).map_while(|_| tank.pop()));
            burst.len()
        })
    }
}

/// Puts packets back into the tank.
pub struct IntoTank;

impl Sink for IntoTank {
    type Item = Buffer;

    #[inline]
    fn send(&mut self, burst: &mut Burst<Buffer>) -> usize {
        let count = burst.len();
        TANK.with_borrow_mut(|tank| tank.extend(std::iter::from_fn(|| burst.pop())));
        count
    }
}

fn swap(_: &Core) -> impl Stage<Buffer, Out = Buffer> + use<> {
    each(|mut packet: Buffer| {
        ethernet::swap_addresses(&mut packet);
        packet
    })
}

/// A stage that counts, and never drops.
struct Pass(u64);

fn pass(_: &Core) -> Pass {
    Pass(0)
}

impl Stage<Buffer> for Pass {
    type Out = Buffer;
    type Drop = NoDrops;

    #[inline]
    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, packet: Buffer) -> Verdict<Buffer> {
        self.0 += 1;
        Ok(packet)
    }
}

drop_reasons! { enum CheckDrop { Spent = "spent" } }

/// A stage that could drop: it never does, but the compiler can't know.
struct Check(u64);

fn check(_: &Core) -> Check {
    Check(u64::MAX)
}

impl Stage<Buffer> for Check {
    type Out = Buffer;
    type Drop = CheckDrop;

    #[inline]
    fn packet(&mut self, cx: &mut Cx<'_, CheckDrop>, packet: Buffer) -> Verdict<Buffer> {
        if self.0 == 0 {
            return cx.drop(packet, CheckDrop::Spent);
        }
        self.0 -= 1;
        Ok(packet)
    }
}

/// A burst stage that counts.
struct Bulk(u64);

fn bulk(_: &Core) -> Bulk {
    Bulk(0)
}

impl BurstStage<Buffer> for Bulk {
    type Out = Buffer;
    type Drop = NoDrops;

    #[inline]
    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Buffer>,
        out: &mut Output<'_, Buffer>,
    ) {
        while let Some(packet) = input.pop() {
            self.0 += 1;
            out.push(packet);
        }
    }
}
