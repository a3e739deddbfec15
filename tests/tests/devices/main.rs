//! The whole engine over virtual devices, in every deployment.

mod captures;
mod hop;
mod kernel;
mod loops;
mod report;
mod shapes;
mod traffic;
