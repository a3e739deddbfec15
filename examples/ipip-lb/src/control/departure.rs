//! Taking a balancer out of service for good: its VIPs are withdrawn, and the program ends once its
//! last connection has.
//!
//! Part of [`Presence`]; reads the configuration and the number of connections. The program never
//! ends while routers may still send new connections here.

use super::presence::Presence;
use crate::answer::Change;
use crate::config::Config;
use crate::until::{Ending, Until};
use std::time::{Duration, Instant};

const NOT_ANNOUNCED: &str = "this balancer announces no VIPs, so it can't withdraw them; its \
     configuration has no section [announce]. Have whatever routes them here route them elsewhere, and \
     stop the program (SIGTERM) once ctl status shows few enough connections";

/// The departure of a balancer.
#[derive(Clone, Copy, Debug)]
pub struct Leave {
    until: Until,
    /// Routers may send new connections until then.
    lingers_until: Instant,
}

impl Leave {
    /// Whether the program may end, given the number of connections left.
    fn is_over(self, now: Instant, connection_count: u64) -> bool {
        self.lingers_until <= now && self.until.is_over(now, Some(connection_count))
    }

    /// How long routers may still send new connections.
    pub fn lingers(self, now: Instant) -> Duration {
        self.lingers_until.saturating_duration_since(now)
    }

    /// The form in `ctl status`.
    pub fn ending(self, now: Instant) -> Ending {
        self.until.ending(now)
    }
}

impl Presence {
    /// Withdraws the VIPs, and ends the run once no connection is left or after the given time,
    /// unless an operator has the VIPs announced again.
    pub(super) fn leave(
        &mut self,
        for_s: Option<u64>,
        config: &Config,
        connection_count: u64,
    ) -> Result<Change, String> {
        let announce = config.announce.as_ref().ok_or(NOT_ANNOUNCED)?;
        let linger = Duration::from_millis(announce.linger_ms.into());
        let now = Instant::now();
        let withdrawn = self.withdraw_now();
        let withdrawn = withdrawn.map_err(|error| format!("the program goes on: {error}"))?;
        let end = for_s.map(|seconds| now + Duration::from_secs(seconds));
        let until = Until { end, is_empty: true };
        self.leave = Some(Leave { until, lingers_until: now + linger });
        let leaving = until.ending(now);
        tracing::warn!("leave: the program ends {}", leaving.leave_text());
        Ok(Change::Leaving { withdrawn, leaving, connections: connection_count })
    }

    /// Whether the departure is over, which is logged.
    #[must_use]
    pub fn has_left(&self, connection_count: u64) -> bool {
        let is_over =
            self.leave.is_some_and(|leave| leave.is_over(Instant::now(), connection_count));
        if is_over {
            tracing::warn!("leave: the program ends; connections left: {connection_count}");
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balancer_stays_while_routers_may_send_what_is_new() {
        let now = Instant::now();
        let after = |s| now + Duration::from_secs(s);
        let leave = |end| Leave { until: Until { end, is_empty: true }, lingers_until: after(5) };
        assert!(!leave(None).is_over(after(4), 0) && leave(None).is_over(after(5), 0));
        assert!(!leave(None).is_over(after(999), 1));
        assert!(!leave(Some(after(1))).is_over(after(4), 0));
        assert!(leave(Some(after(1))).is_over(after(5), 9));
        assert!(!leave(Some(after(60))).is_over(after(59), 1));
        assert_eq!(leave(None).lingers(after(2)), Duration::from_secs(3));
        assert_eq!(leave(None).lingers(after(6)), Duration::ZERO);
    }
}
