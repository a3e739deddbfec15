//! The argument for watching workers.

use crate::watch::WORKER_STALL_MAX;
use clap::Args;
use std::time::Duration;

/// The argument for watching workers.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct StallArgs {
    /// Milliseconds of its own CPU time that a worker may use without passing a burst boundary,
    /// before the process ends with exit code 3; from 10 to 600000, or 0 for no limit, as under a
    /// debugger [default: 1000].
    #[arg(long, value_name = "MS", value_parser = stall_max)]
    worker_stall_ms_max: Option<Duration>,
}

impl StallArgs {
    /// The value on the command line, if given; zero means no limit.
    #[must_use]
    pub const fn given(self) -> Option<Duration> {
        self.worker_stall_ms_max
    }

    /// The argument for [`Watching::stall_max`](crate::Watching::stall_max).
    #[must_use]
    pub fn given_or_default(self) -> Duration {
        self.given().unwrap_or(WORKER_STALL_MAX)
    }
}

/// Parses 0, or 10 to 600,000 milliseconds.
fn stall_max(text: &str) -> Result<Duration, String> {
    let ms = text.parse::<u64>().ok().filter(|&ms| ms == 0 || (10..=600_000).contains(&ms));
    let ms = ms.ok_or_else(|| "write 10 to 600000 milliseconds, or 0 for ever".to_owned())?;
    Ok(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_short_to_be_seen_is_refused() {
        assert_eq!(stall_max("1000"), Ok(Duration::from_secs(1)));
        assert_eq!(stall_max("0"), Ok(Duration::ZERO));
        for wrong in ["9", "600001", "-1", "1s", ""] {
            assert!(stall_max(wrong).unwrap_err().contains("10 to 600000"), "{wrong}");
        }
        assert_eq!(StallArgs::default().given_or_default(), WORKER_STALL_MAX);
    }
}
