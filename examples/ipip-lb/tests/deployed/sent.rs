//! Frames that the balancer sends.

use hotloop::packet::PacketBuf;
use hotloop::packet::ethernet;
use hotloop::packet::ipip::{self, Decapsulated};
use hotloop::packet::memory::MemPacket;

/// A frame that was sent.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Sent {
    /// Whether it was sent by the clients' port, as opposed to the backends' port.
    pub to_client: bool,
    pub frame: Vec<u8>,
}

impl Sent {
    /// The packet, from its IP header on.
    pub fn packet(&self) -> &[u8] {
        &self.frame[ethernet::l3_offset(&self.frame).expect("an IP packet")..]
    }

    /// The tunnel, and the packet in it from its IP header on.
    pub fn unwrapped(&self) -> (Decapsulated, Vec<u8>) {
        let mut packet = MemPacket::new(&self.frame);
        let tunnel = ipip::decapsulate(&mut packet).expect("a tunnel packet");
        let l3_offset = ethernet::l3_offset(packet.data()).expect("an IP packet");
        (tunnel, packet.data()[l3_offset..].to_vec())
    }

    /// The packet in the tunnel, from its IP header on.
    pub fn inner(&self) -> Vec<u8> {
        self.unwrapped().1
    }

    /// The backend that it was sent to.
    pub fn backend(&self) -> String {
        assert!(!self.to_client, "{self:02x?}");
        self.unwrapped().0.destination.to_string()
    }
}

/// The backends of these frames.
pub fn backends(sent: &[Sent]) -> Vec<String> {
    sent.iter().map(Sent::backend).collect()
}
