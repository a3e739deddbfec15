//! Settings of a simulated run.

use crate::{FaultRates, Rng};
use hotloop_engine::{Clock, Deployment};

/// Settings of one simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How the graph is deployed.
    pub deployment: Deployment,
    /// The clock to use: the simulator's or the frames'.
    pub clock: Clock,
    /// Capacity of each ring between two cores, in packets.
    pub ring_capacity: usize,
    /// Number of packets in each port's pool, to be multiplied by the number of ports, since the
    /// TX queues of all ports keep some of them. `None` for an unbounded pool.
    pub pool_count: Option<usize>,
    /// Number of sent packets that each TX queue keeps until the port is stopped.
    pub tx_kept_count: usize,
    /// Whether frames wait instead of being lost.
    pub lossless: bool,
    /// The rates of faults.
    pub rates: FaultRates,
    /// Total number of the scenario's frames that arrive.
    pub frame_count: u64,
    /// Maximum number of peers' answers that arrive. Further ones are lost, so that a peer that
    /// always answers comes to an end.
    pub answer_count_max: u64,
    /// Number of steps after which the run is stopped, whatever is inside; `None` to continue until
    /// everything has arrived.
    pub stop_after_steps: Option<u64>,
}

impl Settings {
    /// Random settings for a graph with one boundary. Half of the runs are run-to-completion on one
    /// to four cores, half a pipeline of one to three cores that poll and one to four that work.
    /// Rings have room for 1 to 64 packets, pools 80 packets or more; half of the runs have faults,
    /// a quarter are lossless, a third are stopped early, and peers send at most 2,000 answers.
    #[must_use]
    pub fn drawn(rng: &mut Rng) -> Self {
        let workers = 1 + rng.index(4);
        let deployment = if rng.permille(500) {
            Deployment::run_to_completion(workers)
        } else {
            Deployment::pipeline([1 + rng.index(3), workers])
        };
        let rates = if rng.permille(500) { Self::drawn_rates(rng) } else { FaultRates::default() };
        Self {
            deployment,
            clock: if rng.permille(250) { Clock::Capture } else { Clock::Wall },
            ring_capacity: 1 << rng.below(7),
            // More than four TX queues and a stage on four cores may keep: 8 each.
            pool_count: rng.permille(500).then(|| 80 + rng.index(200)),
            tx_kept_count: rng.index(9),
            lossless: rng.permille(250),
            rates,
            frame_count: rng.below(400),
            answer_count_max: 2_000,
            stop_after_steps: rng.permille(333).then(|| rng.below(60)),
        }
    }

    fn drawn_rates(rng: &mut Rng) -> FaultRates {
        let mut permille = |most: u64| rng.below(most + 1) as u32;
        FaultRates {
            lost_permille: permille(100),
            truncated_permille: permille(100),
            nombuf_permille: permille(200),
            partial_tx_permille: permille(500),
            full_tx_permille: permille(300),
            full_sends_max: permille(20),
        }
    }
}
