//! `run --replace`: a program takes over from the running one, and no connection breaks.
//!
//! The running program is the *predecessor* of the other, its *successor*. Most devices can't be
//! opened twice, so there is a gap in which neither program receives; everything that can be done
//! before is done before.
//!
//! 1. The successor asks at the control socket (`replace`). The predecessor refuses a program that
//!    can't take over from it, and then nothing has changed.
//! 2. The connection continues as a [`Link`](link::Link): like the nodes of a cluster, the
//!    predecessor sends a snapshot of its exceptions, then their changes.
//! 3. The successor has received all of them, and sends [`Take`](channel::Message::Take). The
//!    predecessor closes its [`Gate`](gate::Gate), so that nothing is received any more, sends the
//!    last changes, and waits for their acknowledgement. Up to here it continues as before if the
//!    successor goes away.
//! 4. The predecessor ends its run, closes its ports and its control socket, and leaves announced
//!    routes in place. It sends [`Yours`](channel::Message::Yours), with the operators' changes and
//!    the files of its TAP interfaces. These interfaces exist while one of the two programs has
//!    them open, so that routes to VIPs stay; they disappear if both processes are gone.
//! 5. The successor opens ports, adopts interfaces and routes, enters the exceptions into its
//!    workers, and opens its own gate.

pub mod channel;
pub mod gate;
pub mod handed_over;
pub mod inheritance;
pub mod link;
pub mod predecessor;
pub mod saved_overrides;
pub mod successor;

use crate::config::Config;
use crate::request::Candidate;
use hotloop_balancer::hashes::HashKey;
use hotloop_cluster::sync::{sha256, wire};
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write;
use std::time::Duration;

/// The version of both sides' messages, apart from the frames of [`wire`], which have their own.
const VERSION: u64 = 1;

impl Candidate {
    /// This program, with this configuration.
    #[must_use]
    pub fn with(config: &Config) -> Self {
        Self { version: VERSION, frames: wire::VERSION.into(), digest: digest(config) }
    }

    /// Checks that the program can take over from a balancer with this configuration.
    ///
    /// # Errors
    /// The reason that the program can't, and a remedy.
    pub fn check(&self, config: &Config) -> Result<(), String> {
        let here = Self::with(config);
        if (self.version, self.frames) != (here.version, here.frames) {
            return Err(format!(
                "this program takes part in version {}.{} of a takeover, the other one in {}.{}: stop this one and \
                 start the other one, which ends connections that are not where the configuration says",
                here.version, here.frames, self.version, self.frames
            ));
        }
        if self.digest != here.digest {
            return Err(
                "its configuration is not the one in force here, by which connections are on their backends: load it here \
                 first (ctl reload), or give that one; services, their backends, balancer.hash_key and \
                 balancer.maglev_slots have to be the same"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// A digest of everything that decides a connection's backend, unless it is an exception.
#[must_use]
pub fn digest(config: &Config) -> String {
    let mut text =
        config.balancer.hash_key.as_ref().map_or_else(|| "public".into(), HashKey::to_hex);
    let _ = writeln!(text, " {}", config.balancer.maglev_slots);
    for it in &config.services {
        let (name, address, protocol, ports) = (&it.name, it.address, it.protocol, it.ports);
        let _ =
            writeln!(text, "{name} {address} {protocol} {ports} {} {}", it.scheduler, it.all_down);
        for backend in &it.backends {
            let _ = writeln!(text, " {} {}", backend.address, backend.weight);
        }
    }
    sha256(&text).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

/// The time of a clock that all processes on the machine share.
#[must_use]
pub fn machine_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const CONFIG: &str = r#"
        [balancer]
        source_v4 = "192.0.2.1"
        mtu = 1500
        decapsulate = []
        [[port]]
        name = "uplink"
        device = "net_null0"
        next_hop_mac = "02:00:00:00:00:01"
        [[service]]
        name = "web"
        address = "203.0.113.10"
        protocol = "tcp"
        ports = "80"
        backend = [{ address = "10.0.0.1" }, { address = "10.0.0.2" }]
    "#;

    #[test]
    fn who_would_choose_differently_is_refused() {
        let config = |text: &str| Config::parse("lb.toml", text).unwrap();
        let here = config(CONFIG);
        assert_eq!(Candidate::with(&here).check(&here), Ok(()));
        let other_port = config(&CONFIG.replace("net_null0", "net_null1"));
        assert_eq!(Candidate::with(&other_port).check(&here), Ok(()));
        for (old, new) in [
            ("10.0.0.2\" }", "10.0.0.3\" }"),
            ("10.0.0.2\" }", "10.0.0.2\", weight = 2 }"),
            ("\"80\"", "\"81\""),
            ("\"tcp\"", "\"udp\""),
            ("mtu", "maglev_slots = 7\nmtu"),
            ("mtu", "hash_key = \"00112233445566778899aabbccddeeff\"\nmtu"),
            ("ports", "scheduler = \"round-robin\"\nports"),
        ] {
            let other = config(&CONFIG.replace(old, new));
            let refused = Candidate::with(&other).check(&here).unwrap_err();
            assert!(refused.contains("ctl reload"), "{new}: {refused}");
        }
        let later = Candidate { frames: 99, ..Candidate::with(&here) };
        assert!(later.check(&here).unwrap_err().contains("the other one in 1.99"));
        assert!(Candidate::default().check(&here).is_err());
    }
}
