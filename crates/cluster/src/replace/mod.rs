//! One program takes over from another, and no connection breaks.
//!
//! The running program is the *predecessor* of the other, its *successor*. Most devices can't be
//! opened twice, so there is a gap in which neither program receives; everything that can be done
//! before is done before.
//!
//! 1. The successor asks at the control socket. The predecessor refuses a program that can't take
//!    over from it, and then nothing has changed.
//! 2. The connection continues as a link of two nodes: like the nodes of a cluster, the predecessor
//!    sends a snapshot of its exceptions, then their changes.
//! 3. The successor has received all of them, and asks for the rest. The predecessor closes its
//!    [`Gate`], so that nothing is received any more, sends the last changes, and waits for their
//!    acknowledgement. Up to here it continues as before if the successor goes away.
//! 4. The predecessor ends its run, closes its ports and its control socket, and leaves announced
//!    routes in place. It sends the rest of its state, with the files of its TAP interfaces. These
//!    interfaces exist while one of the two programs has them open, so that routes to VIPs stay; they
//!    disappear if both processes are gone.
//! 5. The successor opens ports, adopts interfaces and routes, enters the exceptions into its
//!    workers, and opens its own gate.

mod channel;
mod end;
mod gate;
mod handed_over;
mod inheritance;
mod link;
mod machine_time;
mod predecessor;
mod successor;

pub use end::{Bequest, Legacy};
pub use gate::{Gate, Gated};
pub use handed_over::HandedOver;
pub use inheritance::Inherited;
pub use machine_time::MachineTime;
pub use predecessor::Predecessor;
pub use successor::Successor;

/// The version of both sides' messages, apart from their frames, which have [their
/// own](crate::sync::wire::VERSION).
pub const VERSION: u64 = 1;
