//! Nodes that talk: frames, sockets, certificates, and everything that others may send.

mod hostile;
mod identity;
mod nodes;
mod sessions;
mod wire;
