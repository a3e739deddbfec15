//! Three groups with two boundaries, each with its own item type, for ten thousand seeds.

use super::nf::{self, Batch, HEADER_BYTES, KIND_CREATED, Own, Parse, Parsed, shard};
use hotloop_engine::{Chain, Deployment, Graph, Shard, source};
use hotloop_packet::PacketBuf;
use hotloop_stage::each;
use hotloop_testing::simulator::{
    SEED_VARIABLE, Scenario, Settings, Simulated, Totals, World, simulate_seeds,
};
use hotloop_testing::{Frame, PooledPacket, Rng};
use std::collections::BTreeMap;

/// Random settings with a deployment that suits three groups.
fn settings(rng: &mut Rng) -> Settings {
    let deployment = match rng.below(6) {
        0 => Deployment::run_to_completion(1 + rng.index(3)),
        1 | 2 => Deployment::pipeline([1, 1, 1]),
        3 | 4 => Deployment::pipeline([1, 2, 1]),
        _ => Deployment::pipeline([2, 3, 2]),
    };
    Settings { deployment, ..Settings::drawn(rng) }
}

/// Checks that frames were sent in the order of their flow, unchanged, by the queue that `queue_of`
/// selects for the flow.
pub fn check_flows(sent: &[Vec<Frame>], queue_of: impl Fn(u8) -> usize) -> Result<(), String> {
    let mut last_numbers = BTreeMap::new();
    for (tx_index, frames) in sent.iter().enumerate() {
        for frame in frames {
            let [flow, rx_index, high, low, kind] =
                *frame.bytes.first_chunk::<HEADER_BYTES>().ok_or("a short frame was sent")?;
            if kind == KIND_CREATED {
                continue;
            }
            if queue_of(flow) != tx_index {
                return Err(format!(
                    "flow {flow} of queue {} left queue {tx_index}",
                    queue_of(flow)
                ));
            }
            let number = u16::from_be_bytes([high, low]);
            let last = last_numbers.insert((flow, rx_index), number);
            if last.is_some_and(|last| last >= number) {
                return Err(format!("flow {flow}: number {number} after {last:?}"));
            }
            if frame.bytes[HEADER_BYTES..].iter().any(|&byte| byte != low) {
                return Err(format!("flow {flow}: the bytes of number {number} have changed"));
            }
        }
    }
    Ok(())
}

/// A flow's worker hands its packets to one core of the last group.
struct HandsOff;

impl Scenario for HandsOff {
    fn settings(&self, rng: &mut Rng) -> Settings {
        settings(rng)
    }

    fn frame(&self, _: usize, queue_index: usize, number: u64, rng: &mut Rng) -> Frame {
        nf::frame(queue_index, number, rng)
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        source(|core| world.port(0).rx_queue(core))
            .burst_stage(|_| Parse)
            .shard_by(Parsed::shard)
            .stage(|_| Own { clock: world.settings().clock })
            .handoff()
            .burst_stage(|_| Batch::new(world.port(0).pool()))
            .stage(|_| each(|packet: PooledPacket| packet))
            .sink(|core| world.port(0).tx_queue(core))
    }

    fn may_panic(&self) -> bool {
        true
    }

    fn check(&self, run: &Simulated) -> Result<(), String> {
        let deployment = run.settings.deployment;
        let owner = |flow| Shard::from(shard(flow)).worker(deployment.cores_in(1));
        check_flows(&run.sent[0], |flow| owner(flow) % deployment.cores_in(2))
    }
}

/// The last group shards by another hash than the middle one.
struct ShardsAgain;

/// The first byte of a frame is its flow.
fn flow_of(packet: &PooledPacket) -> u8 {
    packet.data().first().copied().unwrap_or_default()
}

fn other_shard(flow: u8) -> Shard {
    Shard::Worker(usize::from(flow))
}

impl Scenario for ShardsAgain {
    fn settings(&self, rng: &mut Rng) -> Settings {
        settings(rng)
    }

    fn frame(&self, _: usize, queue_index: usize, number: u64, rng: &mut Rng) -> Frame {
        nf::frame(queue_index, number, rng)
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        source(|core| world.port(0).rx_queue(core))
            .burst_stage(|_| Parse)
            .shard_by(Parsed::shard)
            .stage(|_| Own { clock: world.settings().clock })
            .shard_by(|packet| other_shard(flow_of(packet)))
            .burst_stage(|_| Batch::new(world.port(0).pool()))
            .sink(|core| world.port(0).tx_queue(core))
    }

    fn may_panic(&self) -> bool {
        true
    }

    fn check(&self, run: &Simulated) -> Result<(), String> {
        let core_count = run.settings.deployment.cores_in(2);
        check_flows(&run.sent[0], |flow| other_shard(flow).worker(core_count))
    }
}

fn assert_varied(totals: &Totals) {
    if std::env::var(SEED_VARIABLE).is_ok() {
        return;
    }
    assert_eq!(totals.seed_count, 10_000);
    assert!(totals.received > 500_000 && totals.sent > 100_000, "{totals:?}");
    assert!(totals.crossed > totals.sent, "packets cross both boundaries: {totals:?}");
    assert!(totals.panicked_run_count > 100, "{totals:?}");
    for reason in ["short", "refused", "ring_full", "stale", "unfinished", "tx_full", "panicked"] {
        let count = totals.dropped.get(reason).copied().unwrap_or_default();
        assert!(count > 1000, "{reason}: {count}");
    }
}

#[test]
fn ten_thousand_seeds_with_a_handoff_keep_a_whole_ledger() {
    assert_varied(&simulate_seeds(0..10_000, &HandsOff).unwrap_or_else(|it| panic!("{it}")));
}

#[test]
fn ten_thousand_seeds_that_shard_twice_keep_a_whole_ledger() {
    assert_varied(&simulate_seeds(0..10_000, &ShardsAgain).unwrap_or_else(|it| panic!("{it}")));
}
