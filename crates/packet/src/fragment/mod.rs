//! Fragments: [`split`] cuts IPv4 packets that are too long for a link (RFC 791, section 3.2), and a
//! [`FragmentView`] reads and checks fragments of both families. [`Pieces`] are those of a datagram that
//! have come.
//!
//! IPv6 packets are only fragmented by their senders (RFC 8200, section 4.5): see
//! [`IcmpError::TooBig`](crate::answer::IcmpError::TooBig).

mod pieces;
mod split;
mod view;

pub use pieces::Pieces;
pub use split::{FragmentError, split};
pub use view::{BadFragment, FragmentId, FragmentView};
