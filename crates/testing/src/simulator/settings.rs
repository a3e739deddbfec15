//! How a simulated run is set up.

use crate::{FaultRates, Rng};
use hotloop_engine::{Clock, Deployment};

/// How one simulated run is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How the graph is deployed.
    pub deployment: Deployment,
    /// Which clock applies: the simulator's, or that of the frames.
    pub clock: Clock,
    /// How many packets each ring between two cores holds.
    pub ring_capacity: usize,
    /// How many packets each port's pool has, times the number of ports: the TX queues of all ports
    /// keep some of them. `None` for as many as are needed.
    pub pool_count: Option<usize>,
    /// How many sent packets each TX queue keeps until the port is stopped.
    pub tx_kept_count: usize,
    /// Whether the ports wait instead of losing.
    pub lossless: bool,
    /// Which faults they have.
    pub rates: FaultRates,
    /// How many of the scenario's frames arrive in all.
    pub frame_count: u64,
    /// How many answers of peers arrive at most. Further ones are lost, so that a peer that always
    /// answers comes to an end.
    pub answer_count_max: u64,
    /// After how many steps the run is stopped, with whatever is inside; `None` for one that goes on
    /// until everything has arrived.
    pub stop_after_steps: Option<u64>,
}

impl Settings {
    /// One of all possible set-ups: one to four cores in a role, rings from 1 to 64, pools from 80
    /// packets up, half of the runs with faults, a quarter lossless, a third stopped early,
    /// at most 2,000 answers.
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
            // Above what four TX queues and a stage on four cores may keep: 8 each.
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
