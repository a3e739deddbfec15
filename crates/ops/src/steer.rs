//! The part of a program in the control thread's loop: commands, metrics, SIGHUP, other work.

use crate::live::Annotate;
use crate::request::{Reply, Request};
use hotloop_engine::Control;
use hotloop_metrics::Scrape;
use std::time::Duration;

/// The part of a program on the control thread of its run: its own `ctl` commands, metrics, and
/// work between packets. Each method has a default, and `()` has nothing but the defaults.
///
/// The control thread calls the methods, one at a time, so they share state without locks. Each
/// takes a few milliseconds at most: clients, links and signals wait meanwhile. Longer work belongs
/// on a thread of its own, with a [`Reply::later`].
///
/// ```
/// use hotloop_engine::Control;
/// use hotloop_ops::{Reply, Request, Steer};
/// use serde_json::json;
///
/// struct Balancer { weight: u64 }
///
/// impl Steer for Balancer {
///     fn answer(&mut self, _: &Control<'_>, request: &Request) -> Result<Reply, String> {
///         match request.command.as_str() {
///             "weight" => {
///                 self.weight = request.arguments.as_u64().ok_or("give a weight, such as 3")?;
///                 Ok(json!(self.weight).into())
///             }
///             _ => request.unknown(),
///         }
///     }
///
///     fn turn(&mut self, _: &Control<'_>) { /* publish the weight to the cores */ }
/// }
/// ```
#[allow(unused_variables, reason = "the defaults use no parameters, which have names for readers")]
pub trait Steer {
    /// Answers a request with a command of the program's own, between two turns. Commands that every
    /// program has don't get here.
    ///
    /// # Errors
    /// The text that the client gets as an error, with a remedy, on [one line](crate::one_line). For
    /// a command that the program doesn't have, [`Request::unknown`] returns the error.
    fn answer(&mut self, control: &Control<'_>, request: &Request) -> Result<Reply, String> {
        request.unknown()
    }

    /// Does the program's own work. It is called once when the cores run, and then every
    /// [`TURN`](crate::TURN) until the end.
    fn turn(&mut self, control: &Control<'_>) {}

    /// Whether the run ends now, although no signal came. It is called after each turn.
    fn is_over(&mut self) -> bool {
        false
    }

    /// Begins the end of the run, and returns how long packets still pass. Turns and answers go on
    /// for that long, unless every source ends. It is called once.
    fn end(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Acts on SIGHUP, however often it came since the last turn. It is called only if the program
    /// [expects](crate::expect_hangup) the signal; otherwise SIGHUP ends the process.
    fn hangup(&mut self) {
        tracing::warn!("SIGHUP: this program has no configuration to read again");
    }

    /// Adds metrics to those of every program. It is called for a scrape, at most 10 times a
    /// second.
    fn metrics(&mut self, scrape: &mut Scrape) {}

    /// Returns the function that comments on each packet in a capture, beside the drop reason. It
    /// is called on the threads of captures.
    fn annotate(&self) -> Option<Annotate> {
        None
    }
}

/// Adds nothing.
impl Steer for () {}
