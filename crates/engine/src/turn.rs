//! The context of a turn, which every node of a core receives.

use hotloop_stage::Instant;
use hotloop_watch::Watch;

/// The time of a turn, and the core's record of its activity.
#[derive(Clone, Copy)]
pub struct TurnContext<'a> {
    pub now: Instant,
    pub watch: &'a Watch,
}
