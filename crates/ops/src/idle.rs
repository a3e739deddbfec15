//! The argument for what idle cores do.

use clap::{Args, ValueEnum};
use hotloop_engine::Idle;

/// The argument for what idle cores do.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct IdleArgs {
    /// How a core idles after a poll that found nothing. Only `adaptive` makes system calls, except
    /// that cores which share a CPU hand it over to each other [default: spin].
    #[arg(long, value_name = "MODE", value_enum)]
    idle: Option<Mode>,
}

/// Values of `--idle`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// Polls again at once: the least latency.
    Spin,
    /// Executes the CPU's pause hint first, up to 64 times in a row, which leaves execution units
    /// to another core that shares them. A packet may wait for it some microseconds.
    Pause,
    /// Sleeps while few packets come. A packet may wait for it up to 150 microseconds.
    Adaptive,
}

impl IdleArgs {
    /// The argument for [`Plan::idle`](hotloop_engine::Plan::idle).
    #[must_use]
    pub fn idle(self) -> Idle {
        self.given().unwrap_or_default()
    }

    /// The value on the command line, if given.
    #[must_use]
    pub const fn given(self) -> Option<Idle> {
        match self.idle {
            Some(Mode::Spin) => Some(Idle::Spin),
            Some(Mode::Pause) => Some(Idle::Pause),
            Some(Mode::Adaptive) => Some(Idle::Adaptive),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        idle: IdleArgs,
    }

    #[test]
    fn every_mode_has_the_engines_name() {
        for (name, idle) in Idle::NAMES {
            assert_eq!(Cli::parse_from(["nf", "--idle", name]).idle.idle(), idle);
        }
        assert_eq!(Cli::parse_from(["nf"]).idle.idle(), Idle::default());
        let refused = Cli::try_parse_from(["nf", "--idle", "sleep"]).err().unwrap().to_string();
        assert!(
            refused.contains("--idle") && refused.contains("spin, pause, adaptive"),
            "{refused}"
        );
    }
}
