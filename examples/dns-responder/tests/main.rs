//! Tests of the responder.

mod answers;
mod program;
mod whole;
