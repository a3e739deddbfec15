//! The parts around a running program: `hotloop-ops`, with capture files and the capabilities of threads.

pub use hotloop_capture as capture;
pub use hotloop_ops::*;
pub use hotloop_privileges::{Capabilities, keep};

/// Settings of a machine that cost packets speed or safety, and the program `hotloop-doctor`.
pub mod doctor {
    pub use hotloop_doctor::{command, main};
    pub use hotloop_machine::*;
}
