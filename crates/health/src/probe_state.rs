//! Whether a backend is up or down, by its probes' results: no clock and no threads, so that each
//! step can be followed and tested.

use std::time::{Duration, Instant};

/// A backend that goes down again within this time of coming up counts as flapping.
pub const FLAP: Duration = Duration::from_secs(60);

/// Maximum multiple of [`rise`](crate::settings::Health::rise) that a flapping backend needs.
pub const RISE_FACTOR_MAX: u32 = 8;

/// Whether a backend is up, and its progress towards a change.
///
/// A backend starts up. `fall` failures in a row take it down, `rise` passes in a row bring it up.
/// Each time it goes down within [`FLAP`] of coming up doubles the required passes, up to
/// [`RISE_FACTOR_MAX`] times `rise`; after it has stayed up for longer, it needs `rise` again.
///
/// ```
/// use hotloop_health::probe_state::ProbeState;
/// use std::time::Instant;
///
/// let now = Instant::now();
/// let mut state = ProbeState::new(2, 3, now);
/// assert!(!state.record(false, now) && !state.record(false, now));
/// assert!(state.record(false, now), "the third failure in a row");
/// assert!(!state.is_up());
/// assert_eq!(state.needed_count(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct ProbeState {
    rise: u32,
    fall: u32,
    is_up: bool,
    since: Instant,
    /// Whether the backend came up at `since`, as opposed to starting so.
    has_risen: bool,
    contrary_count: u32,
    rise_factor: u32,
}

impl ProbeState {
    /// A state that is up from `now` on, unprobed. A `rise` or `fall` of 0 is treated as 1.
    #[must_use]
    pub const fn new(rise: u32, fall: u32, now: Instant) -> Self {
        Self {
            rise,
            fall,
            is_up: true,
            since: now,
            has_risen: false,
            contrary_count: 0,
            rise_factor: 1,
        }
    }

    /// Like [`new`](Self::new), but down.
    #[must_use]
    pub const fn down(rise: u32, fall: u32, now: Instant) -> Self {
        Self { is_up: false, ..Self::new(rise, fall, now) }
    }

    /// Like [`new`](Self::new), but up or down, and since when, as `before`.
    #[must_use]
    pub const fn continuing(rise: u32, fall: u32, before: &Self) -> Self {
        let Self { is_up, since, has_risen, rise_factor, .. } = *before;
        Self { rise, fall, is_up, since, has_risen, contrary_count: 0, rise_factor }
    }

    /// Records a probe that ended at `now`. Returns whether that changed the state from up to down
    /// or back.
    pub fn record(&mut self, has_passed: bool, now: Instant) -> bool {
        if has_passed == self.is_up {
            self.contrary_count = 0;
            return false;
        }
        self.contrary_count += 1;
        if self.contrary_count < self.needed_count() {
            return false;
        }
        if self.is_up {
            let is_flapping = self.has_risen && now.saturating_duration_since(self.since) < FLAP;
            self.rise_factor =
                if is_flapping { (self.rise_factor * 2).min(RISE_FACTOR_MAX) } else { 1 };
        }
        self.has_risen = !self.is_up;
        self.is_up = !self.is_up;
        self.since = now;
        self.contrary_count = 0;
        true
    }

    /// Whether the backend is up.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.is_up
    }

    /// The time of the last change.
    #[must_use]
    pub const fn since(&self) -> Instant {
        self.since
    }

    /// Number of the latest probes in a row that contradict the state.
    #[must_use]
    pub const fn contrary_count(&self) -> u32 {
        self.contrary_count
    }

    /// Number of such probes in a row for a change: failures while up, passes while down.
    #[must_use]
    pub fn needed_count(&self) -> u32 {
        let needed =
            if self.is_up { self.fall } else { self.rise.saturating_mul(self.rise_factor) };
        needed.max(1)
    }
}
