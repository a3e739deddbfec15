//! Stages that split, join, hold and make packets, before the boundary and after it.

use crate::common::{DEPLOYMENTS, Hold, Parcel, Pool, World, run, whole};
use hotloop_engine::{Chain, Report, source};
use hotloop_stage::{Burst, BurstStage, Core, Cx, Error, NoDrops, Output};
use std::sync::Arc;

const COUNT: u64 = 1000;

/// Runs a stage in every deployment, on either side of the boundary; `expect` gets the report, the
/// packets sent, the number of queues, and the number of cores that had the stage.
macro_rules! both_sides {
    (|$core:ident, $world:ident| $make:expr, $expect:expr) => {
        for deployment in DEPLOYMENTS {
            let (receivers, workers) = (deployment.cores_in(0), deployment.cores_in(1));
            let $world = &World::new();
            let graph = source(|core| Ok::<_, Error>($world.rx(core, COUNT)))
                .burst_stage(|$core| $make)
                .shard_by(|parcel| parcel.key)
                .sink(|core| $world.tx_ok(core));
            $expect(&whole(run(graph, deployment)), $world, receivers as u64, receivers as u64);

            let $world = &World::new();
            let graph = source(|core| Ok::<_, Error>($world.rx(core, COUNT)))
                .shard_by(|parcel| parcel.key)
                .burst_stage(|$core| $make)
                .sink(|core| $world.tx_ok(core));
            $expect(&whole(run(graph, deployment)), $world, receivers as u64, workers as u64);
        }
    };
}

/// Makes three of each packet: more than a burst holds.
struct Split(Arc<Pool>);

impl BurstStage<Parcel> for Split {
    type Out = Parcel;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Parcel>,
        out: &mut Output<'_, Parcel>,
    ) {
        while let Some(parcel) = input.pop() {
            for _ in 0..2 {
                out.push_created(self.0.take(parcel.key, parcel.sequence, None));
            }
            out.push(parcel);
        }
    }
}

#[test]
fn one_packet_becomes_three() {
    both_sides!(
        |_core, world| Split(Arc::clone(&world.nic.pool)),
        |report: &Report, world: &World, queues, _| {
            assert_eq!((report.received, report.created), (COUNT * queues, 2 * COUNT * queues));
            assert_eq!(report.sent, 3 * COUNT * queues);
            let sent = world.sorted();
            assert!(sent.chunks(3).all(|three| three.iter().all(|one| *one == three[0])));
        }
    );
}

hotloop_stage::drop_reasons! { enum JoinDrop { Joined = "joined" } }

/// Makes one packet of four; the rest at the end goes on unchanged.
#[derive(Default)]
struct Join(Vec<Parcel>);

impl BurstStage<Parcel> for Join {
    type Out = Parcel;
    type Drop = JoinDrop;

    fn process(
        &mut self,
        cx: &mut Cx<'_, JoinDrop>,
        input: &mut Burst<Parcel>,
        out: &mut Output<'_, Parcel>,
    ) {
        while let Some(parcel) = input.pop() {
            self.0.push(parcel);
            if self.0.len() == 4 {
                out.push(self.0.remove(0));
                for joined in self.0.drain(..) {
                    cx.discard(joined, JoinDrop::Joined);
                }
            }
        }
    }

    fn finish(&mut self, _: &mut Cx<'_, JoinDrop>, out: &mut Output<'_, Parcel>) {
        self.0.drain(..).for_each(|parcel| out.push(parcel));
    }

    fn held(&self) -> usize {
        self.0.len()
    }

    fn held_max(&self) -> usize {
        3
    }
}

#[test]
fn four_packets_become_one() {
    both_sides!(|_core, _world| Join::default(), |report: &Report, _: &World, queues, stages| {
        let received = COUNT * queues;
        assert_eq!(report.received, received);
        assert_eq!(report.dropped["joined"] % 3, 0);
        // Each stage may have ended with up to three packets without a fourth.
        let joined = report.dropped["joined"] / 3;
        assert!(received - joined * 4 <= 3 * stages, "{report}");
        assert_eq!(report.sent, received - joined * 3);
    });
}

#[test]
fn what_is_held_is_given_up_in_the_end_and_in_order() {
    both_sides!(|_core, _world| Hold::of(50), |report: &Report, world: &World, queues, _| {
        assert_eq!((report.received, report.sent), (COUNT * queues, COUNT * queues));
        let seen = world.seen.lock().unwrap();
        for queue in 0..queues {
            for core in 0..4 {
                let of_one =
                    seen.iter().filter(|one| one.core == core && one.sequence >> 32 == queue);
                assert!(of_one.is_sorted_by_key(|one| one.sequence));
            }
        }
    });
}

/// Makes three packets in each of its first hundred ticks, and one at the end.
struct Make(Arc<Pool>, u32, u32);

impl BurstStage<Parcel> for Make {
    type Out = Parcel;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Parcel>,
        out: &mut Output<'_, Parcel>,
    ) {
        while let Some(parcel) = input.pop() {
            out.push(parcel);
        }
    }

    fn tick(&mut self, _: &mut Cx<'_, NoDrops>, out: &mut Output<'_, Parcel>) {
        if self.2 > 0 {
            self.2 -= 1;
            out.push_created(self.0.take(self.1, u64::MAX, None));
        }
    }

    fn finish(&mut self, _: &mut Cx<'_, NoDrops>, out: &mut Output<'_, Parcel>) {
        self.2 = u32::MAX; // A tick after the end would show.
        out.push_created(self.0.take(self.1, u64::MAX, None));
    }
}

/// A key for each core, so that its packets go to another core as well.
fn maker(core: &Core, world: &World) -> Make {
    Make(Arc::clone(&world.nic.pool), crate::common::mix(core.index() as u64), 3)
}

#[test]
fn what_is_made_in_ticks_and_in_the_end_is_sent() {
    both_sides!(|core, world| maker(core, world), |report: &Report, _: &World, queues, stages| {
        assert_eq!((report.received, report.created), (COUNT * queues, 4 * stages), "{report}");
        assert_eq!((report.sent, report.dropped.len()), (COUNT * queues + 4 * stages, 0));
    });
}

#[test]
fn several_in_a_row_work_together() {
    for deployment in DEPLOYMENTS {
        let world = World::new();
        let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
            .burst_stage(|_| Hold::of(50))
            .burst_stage(|_| Split(Arc::clone(&world.nic.pool)))
            .shard_by(|parcel| parcel.key)
            .burst_stage(|_| Split(Arc::clone(&world.nic.pool)))
            .burst_stage(|_| Hold::of(50))
            .burst_stage(|core| maker(core, &world))
            .burst_stage(|_| Hold::of(50))
            .sink(|core| world.tx_ok(core));
        let report = whole(run(graph, deployment));
        let (queues, workers) = (deployment.cores_in(0), deployment.cores_in(1));
        assert_eq!(report.sent, 9 * COUNT * queues as u64 + 4 * workers as u64, "{report}");
        assert!(report.dropped.is_empty());
    }
}
