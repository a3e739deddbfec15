//! Packets of health checks that go through the tunnels: a worker sends them as it sends clients' packets, and
//! takes the replies out of the traffic.
//!
//! Buffers go back and forth by a [`Mailbox`], so that nothing is allocated here. A request with a frame in
//! it is sent, and comes back empty; an empty one is room for a reply, and comes back with the frame that
//! was received.

use super::{BalanceDrop, Turn, Worker};
use crate::own_header::OwnHeader;
use crate::services::ServiceTable;
use hotloop::engine::Mailbox;
use hotloop::packet::classify::Layout;
use hotloop::packet::{PacketBuf, ethernet};
use hotloop::stage::Carries;
use std::fmt;

/// A frame's bytes, or the room for one.
pub type Buffer = Vec<u8>;

/// How long a frame may be that is sent or handed over, in bytes: longer replies are dropped.
pub const BUFFER_BYTES: usize = 1_600;

/// How many buffers a worker has at most.
pub const BUFFERS_MAX: usize = 256;

/// How many frames a worker sends in a turn at most.
const SENT_A_TURN: usize = 8;

/// Makes a packet that holds this frame; none where memory has run out.
pub type Create<P> = Box<dyn FnMut(&[u8]) -> Option<P>>;

/// A worker's end of health checks through tunnels.
pub struct Probing<P> {
    mailbox: Mailbox<Buffer, Buffer>,
    create: Create<P>,
    /// Room for replies. There are never more than the mailbox has requests.
    empty: Vec<Buffer>,
}

impl<P> fmt::Debug for Probing<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probing").field("empty", &self.empty.len()).finish_non_exhaustive()
    }
}

impl<P: PacketBuf> Probing<P> {
    /// Sends what comes by `mailbox`, in packets that `create` makes.
    pub fn new(mailbox: Mailbox<Buffer, Buffer>, create: Create<P>) -> Self {
        Self { mailbox, create, empty: Vec::with_capacity(BUFFERS_MAX) }
    }

    /// The packets that are to be sent now.
    fn due(&mut self) -> impl Iterator<Item = P> {
        std::iter::from_fn(|| {
            loop {
                let mut buffer = self.mailbox.request()?;
                if buffer.is_empty() {
                    self.empty.push(buffer);
                    continue;
                }
                // Where there is no memory for it, the probe sends it again.
                let packet = (self.create)(&buffer);
                buffer.clear();
                self.mailbox.answer(buffer);
                return packet;
            }
        })
        .take(SENT_A_TURN)
    }

    /// Hands a frame over, if there is room for it.
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

impl<P: PacketBuf + Carries> Worker<P> {
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

    /// Takes a packet that is for health checks out of the traffic.
    #[cold]
    pub(super) fn take_reply(&mut self, turn: &mut Turn<'_, '_, '_, P>, packet: P) {
        let is_whole = packet.len_bytes() == packet.data().len();
        let probing = self.probing.as_mut().filter(|_| is_whole);
        let is_taken = probing.is_some_and(|it| it.hand_over(packet.data()));
        let taken = if is_taken { BalanceDrop::ProbeReply } else { BalanceDrop::ProbeReplyLost };
        turn.reject(packet, taken);
    }
}
