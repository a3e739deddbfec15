//! Packets of health checks through tunnels: a worker sends them like clients' packets, and takes
//! the replies out of the traffic. Uses buffers that control sends. Probes and replies never wait
//! for each other: if there is no room for a reply, it is dropped and counted.
//!
//! Buffers go back and forth through a [`Mailbox`], so that nothing is allocated here. A request
//! with a frame is sent, and comes back empty; an empty request is room for a reply, and comes back
//! with the received frame.

use super::{BalanceDrop, Turn, Worker};
use crate::services::ServiceTable;
use hotloop::engine::Mailbox;
use hotloop::packet::classify::Layout;
use hotloop::packet::own_header::OwnHeader;
use hotloop::packet::{PacketBuf, ethernet};
use std::fmt;

/// A frame's bytes, or the room for one.
pub type Buffer = Vec<u8>;

/// Maximum length of a frame to send or to pass to control, in bytes: longer replies are dropped.
pub const BUFFER_BYTES: usize = 1_600;

/// Maximum number of buffers of a worker.
pub const BUFFERS_MAX: usize = 256;

/// Maximum number of frames that a worker sends in a turn.
const SENT_A_TURN: usize = 8;

/// Makes a packet that holds this frame; returns `None` if memory has run out.
pub type Create<P> = Box<dyn FnMut(&[u8]) -> Option<P>>;

/// A worker's end of health checks through tunnels.
pub struct Probing<P> {
    mailbox: Mailbox<Buffer, Buffer>,
    create: Create<P>,
    /// Empty buffers for replies. There are never more than the mailbox has requests.
    empty: Vec<Buffer>,
}

impl<P> fmt::Debug for Probing<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probing").field("empty", &self.empty.len()).finish_non_exhaustive()
    }
}

impl<P: PacketBuf> Probing<P> {
    /// Sends frames from `mailbox`, in packets that `create` makes.
    pub fn new(mailbox: Mailbox<Buffer, Buffer>, create: Create<P>) -> Self {
        Self { mailbox, create, empty: Vec::with_capacity(BUFFERS_MAX) }
    }

    /// The packets to send now.
    fn due(&mut self) -> impl Iterator<Item = P> {
        std::iter::from_fn(|| {
            loop {
                let mut buffer = self.mailbox.request()?;
                if buffer.is_empty() {
                    self.empty.push(buffer);
                    continue;
                }
                // If there is no memory for the packet, the probe sends it again.
                let packet = (self.create)(&buffer);
                buffer.clear();
                self.mailbox.answer(buffer);
                return packet;
            }
        })
        .take(SENT_A_TURN)
    }

    /// Passes a frame to control, if there is room for it.
    fn hand_over(&mut self, frame: &[u8]) -> bool {
        let Some(mut buffer) = self.empty.pop() else { return false };
        let fits = frame.len() <= buffer.capacity();
        if fits {
            buffer.extend_from_slice(frame);
            self.mailbox.answer(buffer);
        } else {
            self.empty.push(buffer);
        }
        fits
    }
}

/// Whether a packet is for health checks: a reply to their own address, or an ICMP error about a tunnel.
pub(super) fn is_for_probes(services: &ServiceTable, header: &OwnHeader, layout: Layout) -> bool {
    services.is_probe_source(header.destination)
        || layout.is_icmp_error() && services.is_tunnel_source(header.destination)
}

impl<P: PacketBuf> Worker<P> {
    /// Sends the probes that are due.
    #[inline]
    pub(super) fn send_probes(&mut self, turn: &mut Turn<'_, '_, '_, P>) {
        let Some(probing) = &mut self.probing else { return };
        let egress = self.egresses.backends;
        for mut packet in probing.due() {
            ethernet::set_addresses(&mut packet, egress.source, egress.destination);
            turn.send_created(packet, egress.route);
        }
    }

    /// Takes a health check's packet out of the traffic.
    #[cold]
    pub(super) fn take_reply(&mut self, turn: &mut Turn<'_, '_, '_, P>, packet: P) {
        let is_whole = packet.len_bytes() == packet.data().len();
        let probing = self.probing.as_mut().filter(|_| is_whole);
        let is_taken = probing.is_some_and(|probing| probing.hand_over(packet.data()));
        let taken = if is_taken { BalanceDrop::ProbeReply } else { BalanceDrop::ProbeReplyLost };
        turn.reject(packet, taken);
    }
}
