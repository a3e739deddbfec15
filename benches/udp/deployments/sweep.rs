//! Increasing load: the datagrams that arrive, and where others are lost, through the kernel and in
//! poll mode.

use crate::Bed;
use crate::programs::{Measured, Window, measure, words};
use crate::wire::{ADDRESSES, RECEIVER, RECEIVER_CPU, poll_sender};
use std::fmt::Write;

/// Offered load relative to a receiver's maximum. A sender that can't reach it sends less.
const SHARES: [f64; 10] = [0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 1.75, 2.0];

/// Number of measurements of the maximum.
const BEST_COUNT: usize = 3;

/// A receiver under increasing load.
pub struct Sweep {
    pub name: &'static str,
    /// The CPU on which the kernel processes received packets.
    softirq_cpu: Option<usize>,
    sink: Vec<String>,
    /// The measurements of each step.
    pub steps: Vec<Measured>,
}

fn receivers() -> Vec<Sweep> {
    let [address, _] = ADDRESSES;
    let receiver = |name, softirq_cpu, sink: &str| Sweep {
        name,
        softirq_cpu,
        sink: words(&format!("{sink} --cpus {RECEIVER_CPU}")),
        steps: Vec::new(),
    };
    let xdp = format!("--port net_af_xdp0,iface={RECEIVER},force_copy=1");
    vec![
        receiver("a kernel socket, softirqs on the next CPU", None, address),
        receiver("a kernel socket, softirqs on its own CPU", Some(RECEIVER_CPU), address),
        receiver("af_xdp", None, &xdp),
    ]
}

/// Offers each receiver an increasing load.
///
/// # Errors
/// The error message of a program that fails.
pub fn sweep(bed: &Bed) -> Result<Vec<Sweep>, String> {
    let mut sweeps = receivers();
    let mut best_pps = Vec::new();
    for sweep in &sweeps {
        let rates: Result<Vec<_>, _> =
            (0..BEST_COUNT).map(|_| step(bed, sweep, None).map(|it| it.received_pps)).collect();
        best_pps.push(rates?.into_iter().fold(0.0, f64::max));
    }
    for share in SHARES {
        for (sweep, best_pps) in sweeps.iter_mut().zip(&best_pps) {
            let measured = step(bed, sweep, Some(best_pps * share))?;
            sweep.steps.push(measured);
        }
    }
    Ok(sweeps)
}

fn step(bed: &Bed, sweep: &Sweep, rate: Option<f64>) -> Result<Measured, String> {
    let mut source = poll_sender();
    source.extend(rate.into_iter().flat_map(|rate| words(&format!("--rate {rate:.0}"))));
    eprintln!(
        "{}, {}",
        sweep.name,
        rate.map_or("at full rate".to_owned(), |rate| format!("{rate:.0} a second"))
    );
    bed.wire.steer(sweep.softirq_cpu)?;
    let source = Some((Some(&bed.wire.sender), &source[..]));
    measure(bed.folder(), Window::LONG, (Some(&bed.wire.receiver), &sweep.sink), source)
}

/// A line for each load offered.
pub fn table(sweeps: &[Sweep]) -> String {
    let mut text = "| receiver | sent, Mpps | received, Mpps | lost, of all sent | where |\n|---|---|---|---|---|\n"
        .to_owned();
    for sweep in sweeps {
        for step in &sweep.steps {
            writeln!(
                text,
                "| {} | {:.3} | {:.3} | {:.1} % | {} |",
                sweep.name,
                step.sent_pps / 1e6,
                step.received_pps / 1e6,
                step.lost_share() * 100.0,
                step.places(),
            )
            .expect("text grows");
        }
    }
    text
}
