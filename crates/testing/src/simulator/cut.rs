//! A shorter form of a seed's run, and the search for the shortest that still fails.

use crate::simulator::{Failure, Scenario, Settings, Simulated, simulate_cut};
use std::fmt;
use std::str::FromStr;

/// A number of the settings that a cut can lower.
struct Dial {
    name: &'static str,
    set: fn(&mut Settings, u64),
    /// The number that a run has used.
    used: fn(&Simulated) -> u64,
}

const DIALS: [Dial; 8] = [
    Dial {
        name: "frames",
        set: |settings, count| settings.frame_count = count,
        used: |run| run.fed_count - run.answered_count,
    },
    Dial {
        name: "steps",
        set: |settings, count| settings.stop_after_steps = Some(count),
        // A scenario whose runs end by themselves may rely on that.
        used: |run| run.settings.stop_after_steps.map_or(0, |steps| steps.min(run.step_count)),
    },
    Dial {
        name: "lost",
        set: |settings, permille| settings.rates.lost_permille = rate(permille),
        used: |run| run.settings.rates.lost_permille.into(),
    },
    Dial {
        name: "truncated",
        set: |settings, permille| settings.rates.truncated_permille = rate(permille),
        used: |run| run.settings.rates.truncated_permille.into(),
    },
    Dial {
        name: "nombuf",
        set: |settings, permille| settings.rates.nombuf_permille = rate(permille),
        used: |run| run.settings.rates.nombuf_permille.into(),
    },
    Dial {
        name: "partial_tx",
        set: |settings, permille| settings.rates.partial_tx_permille = rate(permille),
        used: |run| run.settings.rates.partial_tx_permille.into(),
    },
    Dial {
        name: "full_tx",
        set: |settings, permille| settings.rates.full_tx_permille = rate(permille),
        used: |run| run.settings.rates.full_tx_permille.into(),
    },
    Dial {
        name: "full_sends",
        set: |settings, count| settings.rates.full_sends_max = rate(count),
        used: |run| run.settings.rates.full_sends_max.into(),
    },
];

/// Rates are bisected from a `u32` down.
fn rate(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Settings of a seed's run that were lowered: fewer frames, steps and faults. The run is
/// otherwise that of the seed. The default cuts nothing.
///
/// It is written as in `frames=3,steps=17,lost=0`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cut([Option<u64>; DIALS.len()]);

impl Cut {
    /// Lowers the settings.
    pub(super) fn apply(&self, settings: &mut Settings) {
        for (dial, value) in DIALS.iter().zip(self.0) {
            if let Some(value) = value {
                (dial.set)(settings, value);
            }
        }
    }

    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = DIALS.iter().zip(self.0).filter_map(|(dial, value)| Some((dial.name, value?)));
        for (index, (name, value)) in values.enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cut = Self::default();
        for part in text.split(',') {
            let read = part.split_once('=').and_then(|(name, value)| {
                let index = DIALS.iter().position(|dial| dial.name == name)?;
                Some((index, value.parse().ok()?))
            });
            let (index, value) = read.ok_or_else(|| format!("{part:?} is no part of a cut"))?;
            cut.0[index] = Some(value);
        }
        Ok(cut)
    }
}

/// The most rounds over all dials. One dial may let another be lowered further.
const ROUNDS_MAX: usize = 4;

/// Searches for the shortest run that fails as this one does, and returns its failure. Each setting
/// is bisected while the others stay, so it is only the shortest in each of them, and only where
/// more input fails as well; but it does fail.
pub(super) fn shrink(scenario: &impl Scenario, mut failure: Box<Failure>) -> Box<Failure> {
    for _ in 0..ROUNDS_MAX {
        let before = failure.cut.clone();
        for (index, dial) in DIALS.iter().enumerate() {
            let (mut passing, mut is_first) = (0, true);
            while let Some(run) = &failure.run
                && (dial.used)(run) > passing
            {
                let used = (dial.used)(run);
                // No input of that kind may do at all.
                let value = if is_first { 0 } else { passing + (used - passing) / 2 };
                is_first = false;
                let mut cut = failure.cut.clone();
                cut.0[index] = Some(value);
                match simulate_cut(failure.seed, &cut, scenario) {
                    Err(shorter) if is_alike(&shorter, &failure) => failure = shorter,
                    _ => passing = value + 1,
                }
            }
        }
        if failure.cut == before {
            break;
        }
    }
    failure
}

/// Whether two runs fail for the same reason, whatever the numbers in it.
fn is_alike(one: &Failure, other: &Failure) -> bool {
    let reason = |failure: &Failure| {
        let first = failure.findings.first().map_or("", String::as_str);
        first.replace(|it: char| it.is_ascii_digit(), "")
    };
    reason(one) == reason(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::World;
    use crate::{FaultRates, Frame, PooledPacket, Rng};
    use hotloop_engine::{Chain, Deployment, Graph, source};

    /// A network function that must not send a certain frame, which is the planted bug.
    struct Planted;

    impl Scenario for Planted {
        fn settings(&self, rng: &mut Rng) -> Settings {
            Settings {
                deployment: Deployment::pipeline([1, 2]),
                stop_after_steps: Some(5_000),
                pool_count: None,
                frame_count: 400,
                rates: FaultRates { lost_permille: 50, full_tx_permille: 90, ..Default::default() },
                ..Settings::drawn(rng)
            }
        }

        fn frame(&self, _: usize, _: usize, number: u64, _: &mut Rng) -> Frame {
            Frame::new(number.to_be_bytes())
        }

        fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
            source(|core| world.port(0).rx_queue(core))
                .shard_by(|packet: &PooledPacket| packet.index() as u32)
                .sink(|core| world.port(0).tx_queue(core))
        }

        fn check(&self, run: &Simulated) -> Result<(), String> {
            let is_sent = |number: u64| {
                run.sent.iter().flatten().flatten().any(|it| it.bytes == number.to_be_bytes())
            };
            // Shorter runs that fail otherwise are no answer.
            match run.fed_count {
                0 => Err("nothing was fed".to_owned()),
                _ if is_sent(20) => Err(format!("20 of {} frames left", run.fed_count)),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn a_failure_is_cut_to_what_it_needs_and_the_cut_repeats_it() {
        let whole = (0..).find_map(|seed| simulate_cut(seed, &Cut::default(), &Planted).err());
        let whole = whole.expect("frame 20 is sent soon");
        let (seed, findings) = (whole.seed, whole.findings.clone());
        let whole_steps = whole.run.as_ref().unwrap().step_count;
        let shrunk = shrink(&Planted, whole);
        let run = shrunk.run.as_ref().unwrap();
        assert_eq!(run.settings.rates, FaultRates::default(), "{shrunk}");
        // The frame is the 21st of the only RX queue.
        assert_eq!((run.fed_count, run.answered_count), (21, 0), "{shrunk}");
        assert!(run.step_count < whole_steps, "{shrunk}");
        assert!(findings[0].contains("frames left") && shrunk.findings[0].contains("20 of 21"));

        let again: Cut = shrunk.cut.to_string().parse().unwrap();
        assert_eq!(again, shrunk.cut);
        let again = simulate_cut(seed, &again, &Planted).unwrap_err();
        assert_eq!((&again.run, &again.findings), (&shrunk.run, &shrunk.findings));
        // Each number is needed.
        let (frames, steps) = (shrunk.cut.0[0].unwrap(), shrunk.cut.0[1].unwrap());
        for (index, value) in [(0, frames - 1), (1, steps - 1)] {
            let mut less = shrunk.cut.clone();
            less.0[index] = Some(value);
            let less = simulate_cut(seed, &less, &Planted).err();
            assert!(!less.is_some_and(|less| is_alike(&less, &shrunk)), "{shrunk}");
        }
    }

    #[test]
    fn what_is_no_cut_is_named() {
        let cut: Cut = "steps=7,lost=0".parse().unwrap();
        assert_eq!(cut.to_string(), "steps=7,lost=0");
        for wrong in ["", "steps", "steps=x", "frames=1,,steps=2", "colour=3"] {
            assert!(wrong.parse::<Cut>().unwrap_err().contains("no part of a cut"), "{wrong}");
        }
    }
}
