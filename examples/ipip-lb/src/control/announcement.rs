//! Withdrawing VIPs and announcing them again. Packets that still arrive are forwarded meanwhile.
//!
//! Part of [`Presence`]; reads the configuration. Routers have `announce.linger_ms` to move packets
//! elsewhere before anything else ends.

use super::presence::Presence;
use crate::answer::Change;
use crate::config::Config;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const NOT_ANNOUNCED: &str =
    "this balancer announces no VIPs; its configuration has no section [announce]";

impl Presence {
    /// Withdraws the VIPs before anything else ends. Returns how long packets must still be
    /// forwarded, until routers have moved them elsewhere.
    pub fn withdraw(&mut self, config: &Config) -> Duration {
        let Some(announcer) = &mut self.announcer else { return Duration::ZERO };
        let linger_ms = config.announce.as_ref().map_or(0, |announce| announce.linger_ms);
        match announcer.withdraw().is_empty() {
            true => self.leave.map_or(Duration::ZERO, |leave| leave.lingers(Instant::now())),
            false => Duration::from_millis(linger_ms.into()),
        }
    }

    /// Withdraws the VIPs until an operator has them announced again, across reloads.
    pub(super) fn withdraw_now(&mut self) -> Result<Vec<IpAddr>, String> {
        let announcer = self.announcer.as_mut().ok_or(NOT_ANNOUNCED)?;
        let withdrawn = announcer.withdraw();
        let left: Vec<_> = announcer.installed().map(|vip| vip.to_string()).collect();
        if left.is_empty() {
            return Ok(withdrawn);
        }
        let left = left.join(", ");
        Err(format!("still announced: {left}; the log says why, and it is tried again each second"))
    }

    /// Announces the ready VIPs again, unless the program is about to leave.
    pub(super) fn return_vips(&mut self) {
        if let Some(announcer) = self.announcer.as_mut().filter(|_| self.leave.is_none()) {
            announcer.announce().for_each(drop);
        }
    }

    /// Announces the ready VIPs again, and cancels a departure.
    pub(super) fn announce_again(&mut self) -> Result<Change, String> {
        let announcer = self.announcer.as_mut().ok_or(NOT_ANNOUNCED)?;
        let ready = announcer.announce().collect();
        if self.leave.take().is_some() {
            tracing::info!("leave: the program goes on: an operator has its VIPs announced again");
        }
        Ok(Change::Announced { ready })
    }
}
