//! The time of one item from core to core, compared with two bare cache lines.

use crate::Bench;
use crossbeam_utils::CachePadded;
use hotloop_measure::bare_lines::BareLines;
use hotloop_measure::contest::Contest;
use hotloop_measure::cores::Pair;
use hotloop_measure::distance::Distance;
use std::time::Duration;

/// At most 1.1 times the time of the lines.
const AIM: f64 = 1.0 / 1.1;

/// An item back and forth over two rings, halved; the lines in turn with it.
pub fn bench(bench: &mut Bench, pair: Pair) {
    let lines = BareLines::default();
    let contest = Contest::new("ring/latency")
        .side("hotloop", rings(pair))
        .side("two bare lines", |count| lines.trips(pair, count))
        .between(pair);
    let Some(outcome) = contest.run(&mut bench.instrument) else { return };
    let name = |it: Distance| format!("ring, {} cores, one-way latency", it.name());
    outcome.add_by_distance(&mut bench.table, name, |outcome, name, _| {
        vec![outcome.row(name, "ns", ("hotloop", "two bare lines"), AIM)]
    });
}

fn rings(pair: Pair) -> impl FnMut(u64) -> Duration {
    let (call_tx, call_rx) = hotloop::ring::ring::<u64>(1_024);
    let (echo_tx, echo_rx) = hotloop::ring::ring::<u64>(1_024);
    let (mut here, mut there) =
        (CachePadded::new((call_tx, echo_rx)), CachePadded::new((echo_tx, call_rx)));
    move |count| {
        let round_trips = (count / 2).max(1);
        let (echo_tx, call_rx) = &mut *there;
        let echo = move || {
            for _ in 0..round_trips {
                let item = loop {
                    if let Some(item) = call_rx.pop() {
                        break item;
                    }
                };
                echo_tx.push(item).expect("the ring is empty");
            }
        };
        let call = || {
            let (call_tx, echo_rx) = &mut *here;
            for number in 0..round_trips {
                call_tx.push(number).expect("the ring is empty");
                let item = loop {
                    if let Some(item) = echo_rx.pop() {
                        break item;
                    }
                };
                assert_eq!(item, number);
            }
        };
        pair.run(echo, call).mul_f64(count as f64 / (2 * round_trips) as f64)
    }
}
