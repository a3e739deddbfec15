//! The states of a connection.

use hotloop_agreement::Stage;

/// The state of a connection, which determines how long it is remembered after its last packet: the
/// [`Class`](hotloop::flow::Class) of its entry.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum State {
    /// TCP with only SYNs seen.
    Opening = 0,
    /// TCP.
    Established = 1,
    /// TCP that was reset, or closed by both sides.
    Closing = 2,
    /// UDP.
    Udp = 3,
    /// Every other protocol.
    Other = 4,
}

impl State {
    /// The stage, as the rules of the agreement see it.
    #[must_use]
    pub const fn stage(self) -> Stage {
        match self {
            Self::Opening => Stage::Opening,
            Self::Established | Self::Udp | Self::Other => Stage::Established,
            Self::Closing => Stage::Closing,
        }
    }
}
