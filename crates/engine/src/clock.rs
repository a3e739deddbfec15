//! The source of the engine's time.

use hotloop_stage::Instant;
use hotloop_watch::TimeSource;
use std::sync::Arc;

/// The source of the engine's time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Clock {
    /// The CPU's time-stamp counter, read once a loop; zero is when the engine started.
    #[default]
    Wall,
    /// The packets' arrival times from a capture file: each packet runs at its arrival time, and
    /// time stands still without packets. Time never goes back: on a core that takes packets from
    /// several others, it is the latest time of all.
    Capture,
}

/// A clock that runs.
#[derive(Debug)]
pub(crate) enum RunningClock {
    Wall { clock: quanta::Clock, start: u64 },
    Capture,
}

impl RunningClock {
    pub(crate) fn start(clock: Clock) -> Self {
        match clock {
            Clock::Wall => {
                let clock = quanta::Clock::new();
                let start = clock.raw();
                Self::Wall { clock, start }
            }
            Clock::Capture => Self::Capture,
        }
    }

    /// The time now; zero if packets' arrivals advance the time.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::Wall { clock, start } => {
                Instant::from_ns(clock.delta_as_nanos(*start, clock.raw()))
            }
            Self::Capture => Instant::from_ns(0),
        }
    }

    /// Whether packets' arrivals advance the time.
    pub(crate) const fn is_paced(&self) -> bool {
        matches!(self, Self::Capture)
    }

    /// The time for code without a clock of its own; `None` if packets' arrivals advance the time.
    pub(crate) fn source(self: &Arc<Self>) -> Option<TimeSource> {
        let clock = Arc::clone(self);
        (!self.is_paced()).then(|| Arc::new(move || clock.now().as_ns()) as TimeSource)
    }
}
