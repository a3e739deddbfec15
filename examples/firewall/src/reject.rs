//! Answers to packets that a rule rejects.

use hotloop::packet::answer::{AnswerError, IcmpError, icmp_error, tcp_reset};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::protocol;
use hotloop::prelude::*;
use hotloop::stage::TokenRate;

/// Limits the answers of a core, since senders may be forged (RFC 1812, section 4.3.2.8).
pub const RATE: TokenRate = TokenRate::per_second(1000, 100);

/// Turns a packet with this key into its answer: a reset for TCP, an ICMP error otherwise, as if the
/// destination had sent it, as the firewall has no address.
///
/// # Errors
/// The packet gets no answer; it is unchanged.
pub fn reject<P: PacketBuf>(packet: &mut P, key: &FlowKey) -> Result<(), AnswerError> {
    if key.protocol() == protocol::TCP {
        return tcp_reset(packet);
    }
    icmp_error(packet, key.destination(), IcmpError::Prohibited)?;
    ethernet::swap_addresses(packet);
    Ok(())
}
