//! Withdrawing VIPs and announcing them again. Packets that still arrive are forwarded meanwhile.
//!
//! Part of [`Presence`]; reads the configuration. Routers have `announce.linger_ms` to move packets
//! elsewhere before anything else ends.

use super::presence::Presence;
use crate::config::Config;
use serde_json::{Value, json};
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
    pub(super) fn withdraw_now(&mut self) -> Result<Value, String> {
        let announcer = self.announcer.as_mut().ok_or(NOT_ANNOUNCED)?;
        let withdrawn = texts(announcer.withdraw());
        let left = texts(announcer.installed());
        if left.is_empty() {
            return Ok(json!({ "withdrawn": withdrawn }));
        }
        let left = left.join(", ");
        Err(format!("still announced: {left}; the log says why, and it is tried again each second"))
    }

    /// Announces the ready VIPs again, and cancels a departure.
    pub(super) fn announce_again(&mut self) -> Result<Value, String> {
        let announcer = self.announcer.as_mut().ok_or(NOT_ANNOUNCED)?;
        let ready = texts(announcer.announce());
        if self.leave.take().is_some() {
            tracing::info!("leave: the program goes on: an operator has its VIPs announced again");
        }
        Ok(json!({ "ready": ready }))
    }
}

fn texts(vips: impl IntoIterator<Item = IpAddr>) -> Vec<String> {
    vips.into_iter().map(|vip| vip.to_string()).collect()
}
