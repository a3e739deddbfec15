//! Communication of nodes: frames, sockets, certificates, and everything that others may send.

pub(crate) mod authority;
mod hostile;
mod identity;
mod nodes;
mod renewal;
mod sessions;
mod wire;
