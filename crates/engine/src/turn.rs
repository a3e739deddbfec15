//! The context of a turn, which every node of a core gets.

use hotloop_stage::Instant;
use hotloop_watch::Watch;

/// The time of a turn, and where the core notes what it does.
#[derive(Clone, Copy)]
pub struct TurnContext<'a> {
    pub now: Instant,
    pub watch: &'a Watch,
}
