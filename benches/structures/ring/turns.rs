//! Both ends of a ring alternating on one core: the cost of a batch if no line has to cross, with
//! exact instruction counts.

use super::{
    BATCH_MAX, CAPACITY, OTHERS_AIM, PEERS, Pop, Push, hotloop_ends, ringbuf_ends, rtrb_ends,
    sum_below,
};
use crate::Bench;
use hotloop::dpdk::Eal;
use hotloop_benches::peers::rte_ring;
use hotloop_measure::contest::Contest;
use std::time::{Duration, Instant};

/// Sizes of batches that lie in one piece.
const BATCHES: [usize; 2] = [32, 64];

pub fn bench(bench: &mut Bench) -> Result<(), String> {
    for batch in BATCHES {
        let contest = Contest::new(&format!("ring by turns/{batch}"))
            .side("hotloop", by_turns(batch, hotloop_ends()))
            .side(PEERS[0], dpdk(bench.eal, batch)?)
            .side(PEERS[1], by_turns(batch, rtrb_ends()))
            .side(PEERS[2], by_turns(batch, ringbuf_ends()));
        let Some(outcome) = contest.run(&mut bench.instrument) else { continue };
        let name = format!("ring, both ends by turns, batch {batch}");
        let rows = PEERS
            .into_iter()
            .map(|peer| outcome.row(&name, "ns an item", ("hotloop", peer), OTHERS_AIM));
        bench.table.rows.extend(rows);
    }
    Ok(())
}

/// Numbers, a batch in and out again.
fn by_turns(
    batch: usize,
    (mut push, mut pop): (impl Push, impl Pop),
) -> impl FnMut(u64) -> Duration {
    move |count| {
        let (mut items, mut sum) = ([0; BATCH_MAX], 0);
        let start = Instant::now();
        for first in (0..count).step_by(batch) {
            let burst = &mut items[..batch.min((count - first) as usize)];
            for (place, number) in burst.iter_mut().zip(first..) {
                *place = number;
            }
            assert_eq!(push(burst), burst.len());
            let (popped_count, popped_sum) = pop(burst.len());
            assert_eq!(popped_count, burst.len());
            sum += popped_sum;
        }
        let time = start.elapsed();
        assert_eq!(sum, sum_below(count));
        time
    }
}

/// The same in C.
fn dpdk(eal: Eal, batch: usize) -> Result<impl FnMut(u64) -> Duration, String> {
    let (mut tx, mut rx) = rte_ring::ring(eal, CAPACITY as u32)?;
    Ok(move |count| {
        let start = Instant::now();
        let sum = tx.by_turns(&mut rx, count, batch as u32);
        let time = start.elapsed();
        assert_eq!(sum, sum_below(count));
        time
    })
}
