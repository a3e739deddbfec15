//! The packet, turned round: from its destination to its source, with another payload.

use crate::{
    PacketBuf,
    answer::{
        ANSWER_TTL, AnswerError,
        about::{About, Ends},
    },
    ipv4, ipv6,
};

/// Bits of a TOS or traffic class that are not the congestion mark.
const SERVICES: u8 = 0xfc;

impl About {
    /// Swaps the packet's addresses, leaves out IPv4 options and IPv6 extension headers, and cuts
    /// the payload to `payload_bytes`. Returns the payload's part in the first segment.
    ///
    /// The only step that can fail comes first, and it can't in a packet whose headers lie in its
    /// first segment, as [`read`](Self::read) has checked.
    pub(super) fn turn<'a, P: PacketBuf>(
        &self,
        packet: &'a mut P,
        payload_bytes: usize,
    ) -> Result<&'a mut [u8], AnswerError> {
        let plain_bytes = self.plain_bytes();
        let front_bytes = self.l3_offset + plain_bytes;
        packet.remove(front_bytes, self.header_bytes - plain_bytes)?;
        packet.truncate(front_bytes + payload_bytes);
        let bytes = packet.data_mut().get_mut(self.l3_offset..).unwrap_or_default();
        match self.ends {
            Ends::V4(..) => turn_v4(bytes, (plain_bytes + payload_bytes) as u16),
            Ends::V6(..) => turn_v6(bytes, self.protocol, payload_bytes as u16),
        }
        Ok(bytes.get_mut(plain_bytes..).unwrap_or_default())
    }

    /// Length in bytes of the packet's IP header without options or extension headers.
    pub(super) fn plain_bytes(&self) -> usize {
        match self.ends {
            Ends::V4(..) => ipv4::HEADER_BYTES,
            Ends::V6(..) => ipv6::HEADER_BYTES,
        }
    }

    /// Whether the checksum of a TCP or UDP message in the packet, `message_bytes` long, is right.
    pub(super) fn is_sum_right<P: PacketBuf>(&self, packet: &P, message_bytes: usize) -> bool {
        let start = self.l3_offset + self.header_bytes;
        let pseudo = self.ends.pseudo_header(self.protocol, message_bytes);
        pseudo.packet(packet, start..start + message_bytes).checksum() == 0
    }
}

fn turn_v4(bytes: &mut [u8], total: u16) {
    let Some(header) = bytes.first_chunk_mut::<{ ipv4::HEADER_BYTES }>() else { return };
    header[0] = ipv4::VERSION_IHL;
    header[1] &= SERVICES;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[8] = ANSWER_TTL;
    let (source, destination) = header[12..].split_at_mut(4);
    source.swap_with_slice(destination);
    // The header is whole: it was checked, and its checksum was right.
    let _ = ipv4::fill_checksum(bytes);
}

fn turn_v6(bytes: &mut [u8], protocol: u8, payload_bytes: u16) {
    let Some(header) = bytes.first_chunk_mut::<{ ipv6::HEADER_BYTES }>() else { return };
    // The congestion mark is in the upper half of the second byte; there is no flow label.
    header[1] &= SERVICES << 4;
    header[2..4].fill(0);
    header[4..6].copy_from_slice(&payload_bytes.to_be_bytes());
    header[6] = protocol;
    header[7] = ANSWER_TTL;
    let (source, destination) = header[8..].split_at_mut(16);
    source.swap_with_slice(destination);
}
