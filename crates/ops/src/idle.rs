//! What cores do when there is nothing to do, as a command line says it.

use clap::{Args, ValueEnum};
use hotloop_engine::Idle;

/// What cores do when there is nothing to do, as a command line says it.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct IdleArgs {
    /// What a core does when it has polled and found nothing. Only `adaptive` makes system calls, except that
    /// cores which share a CPU hand it over to each other [default: spin].
    #[arg(long, value_name = "MODE", value_enum)]
    idle: Option<Mode>,
}

/// What `--idle` takes.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// Polls again at once: the least latency.
    Spin,
    /// Executes the CPU's pause hint first, up to 64 times in a row, which leaves execution units to
    /// another core that shares them; the next packet waits some microseconds for it at most.
    Pause,
    /// Sleeps while few packets come, for 150 microseconds at most, which a packet may wait for.
    Adaptive,
}

impl IdleArgs {
    /// What to give to [`Plan::idle`](hotloop_engine::Plan::idle).
    #[must_use]
    pub fn idle(self) -> Idle {
        self.given().unwrap_or_default()
    }

    /// What the command line says, where it says anything.
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
