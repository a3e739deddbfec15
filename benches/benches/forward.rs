//! Forwarding beside `dpdk-testpmd`, and what the engine itself costs.
//!
//! Each round starts the peer, then us, each in a process of its own, forwarding between two net_null
//! ports on one core; figures are packets a second of that core's CPU time.

use hotloop_benches::forwarder::{self, Case, Mode};
use hotloop_benches::row::{Row, publish};
use hotloop_benches::testpmd;
use std::process::ExitCode;

const ROUND_COUNT: usize = 7;

/// 2 MiB pages that both need, one after the other.
const HUGEPAGE_COUNT: usize = 300;

const HUGEPAGES_FILE: &str = "/proc/sys/vm/nr_hugepages";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(place) = arguments.iter().position(|argument| argument == "--measure") {
        let settings = arguments.get(place + 1).map_or("", String::as_str);
        return match forwarder::run(settings) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let (mut rows, mut unshown) = (Vec::new(), Vec::new());
    let reserved = Reserved::hugepages();
    for (mode, name) in [(Mode::Io, "io"), (Mode::MacSwap, "macswap")] {
        for burst in [32, 64] {
            let case = Case { mode, burst, hugepages: true, stages: 0 };
            let name = format!("{name}, burst {burst}");
            match &reserved {
                Ok(_) => compare(&format!("{name}, hugepages"), case, 1.0, &mut rows, &mut unshown),
                Err(reason) => unshown.push(format!("{name}, hugepages: {reason}")),
            }
            let case = Case { hugepages: false, ..case };
            compare(&format!("{name}, no hugepages"), case, 2.5, &mut rows, &mut unshown);
        }
    }
    price_stages(reserved.is_ok(), &mut rows, &mut unshown);
    drop(reserved);
    match publish("forward", &rows, &unshown) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the table can't be written: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(name: &str, case: Case, aim: f64, rows: &mut Vec<Row>, unshown: &mut Vec<String>) {
    eprintln!("measuring {name}");
    let rounds: Result<Vec<_>, String> = (0..ROUND_COUNT)
        .map(|_| {
            let theirs = testpmd::measure(case)?;
            let ours = forwarder::measure(case)?;
            Ok((ours.mpps(), theirs.mpps()))
        })
        .collect();
    match rounds {
        Ok(rounds) => rows.push(Row::rate(name, "testpmd", "Mpps", &rounds, aim)),
        Err(reason) => unshown.push(format!("{name}: {reason}")),
    }
}

/// What a fused stage costs: the time with five of them less the time without, by five.
fn price_stages(hugepages: bool, rows: &mut Vec<Row>, unshown: &mut Vec<String>) {
    let name = "a fused stage, of five";
    eprintln!("measuring {name}");
    let bare = Case { mode: Mode::Io, burst: 64, hugepages, stages: 0 };
    let rounds: Result<Vec<_>, String> = (0..ROUND_COUNT)
        .map(|_| {
            let without = forwarder::measure(bare)?;
            let with = forwarder::measure(Case { stages: 5, ..bare })?;
            Ok((with.ns_per_packet() - without.ns_per_packet()) / 5.0)
        })
        .collect();
    match rounds {
        Ok(rounds) => rows.push(Row::limit(name, "ns a packet", &rounds, 1.0)),
        Err(reason) => unshown.push(format!("{name}: {reason}")),
    }
}

/// Hugepages, reserved for as long as this lives.
struct Reserved {
    /// How many to go back to, where some were added.
    before: Option<String>,
}

impl Reserved {
    fn hugepages() -> Result<Self, String> {
        let read = || std::fs::read_to_string(HUGEPAGES_FILE).map_err(|error| error.to_string());
        let count = |text: &str| text.trim().parse::<usize>().unwrap_or(0);
        let before = read()?;
        if count(&before) >= HUGEPAGE_COUNT {
            return Ok(Self { before: None });
        }
        std::fs::write(HUGEPAGES_FILE, HUGEPAGE_COUNT.to_string()).map_err(|error| {
            format!("{HUGEPAGE_COUNT} pages of 2 MiB are needed: {error}; reserve them as root")
        })?;
        let reserved = Self { before: Some(before) };
        let got = count(&read()?);
        if got < HUGEPAGE_COUNT {
            return Err(format!(
                "{HUGEPAGE_COUNT} pages of 2 MiB are needed, the kernel gave {got}"
            ));
        }
        Ok(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // Nothing is left to be done about it where it fails.
            let _ = std::fs::write(HUGEPAGES_FILE, before.trim());
        }
    }
}
