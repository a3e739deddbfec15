//! What cores do when there is nothing to do, as a command line says it.

use clap::{Args, ValueEnum};
use hotloop_engine::Idle;

/// What cores do when there is nothing to do, as a command line says it.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct IdleArgs {
    /// What a core does when it has polled and found nothing. Neither makes a system call, except that
    /// cores which share a CPU hand it over to each other.
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Mode::Spin)]
    idle: Mode,
}

/// What `--idle` takes.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Mode {
    /// Polls again at once: the least latency.
    #[default]
    Spin,
    /// Executes the CPU's pause hint first, up to 64 times in a row, which leaves execution units to
    /// another core that shares them; the next packet waits some microseconds for it at most.
    Pause,
}

impl IdleArgs {
    /// What to give to [`Plan::idle`](hotloop_engine::Plan::idle).
    #[must_use]
    pub const fn idle(self) -> Idle {
        match self.idle {
            Mode::Spin => Idle::Spin,
            Mode::Pause => Idle::Pause,
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
        assert!(refused.contains("--idle") && refused.contains("spin, pause"), "{refused}");
    }
}
