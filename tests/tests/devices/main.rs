//! The whole engine over virtual devices, in every deployment.

mod captures;
mod hop;
mod loops;
mod report;
mod traffic;
