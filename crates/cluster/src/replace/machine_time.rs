//! Time that both programs share.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A time of the clock that all processes on the machine share.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub struct MachineTime {
    ns: u64,
}

impl MachineTime {
    /// The time now.
    #[must_use]
    pub fn now() -> Self {
        let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        Self { ns: now.as_nanos() as u64 }
    }

    /// The number of milliseconds since this time.
    #[must_use]
    pub fn elapsed_ms(self) -> f64 {
        Self::now().ns.saturating_sub(self.ns) as f64 / 1e6
    }
}
