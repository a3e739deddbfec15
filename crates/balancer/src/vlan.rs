//! Ports that are one VLAN of their device's traffic (802.1Q): tags are removed after the source
//! and added before the sink. Uses the frame's headroom. Between both stages, frames have no tag.

use crate::classify::ReceivingPorts;
use crate::route::Route;
use hotloop::engine::Routed;
use hotloop::packet::PacketBuf;
use hotloop::packet::ethernet::{self, ETHERTYPE_VLAN, VlanTag};
use hotloop::stage::{Burst, BurstStage, Cx, Output, drop_reasons};

drop_reasons! {
    /// Reasons for [`Untag`] to drop.
    pub enum UntagDrop {
        /// The port has a VLAN, and the frame has no tag, or another VLAN's.
        OtherVlan = "other_vlan",
    }
}

drop_reasons! {
    /// Reasons for [`Tag`] to drop.
    pub enum TagDrop {
        /// The packet has no headroom left for a tag.
        NoHeadroom = "no_headroom",
    }
}

/// Removes the tags from packets of ports with a VLAN, and drops packets of other VLANs.
#[derive(Debug)]
pub struct Untag<'a> {
    ports: &'a ReceivingPorts,
    has_any: bool,
}

impl<'a> Untag<'a> {
    /// Untags by these ports' settings.
    #[must_use]
    pub fn new(ports: &'a ReceivingPorts) -> Self {
        Self { ports, has_any: ports.has_vlans() }
    }
}

impl<P: PacketBuf> BurstStage<P> for Untag<'_> {
    type Out = P;
    type Drop = UntagDrop;

    fn process(
        &mut self,
        cx: &mut Cx<'_, UntagDrop>,
        input: &mut Burst<P>,
        out: &mut Output<'_, P>,
    ) {
        if !self.has_any {
            return out.map(input, Some);
        }
        out.map(input, |mut packet| {
            let Some(vlan) = self.ports.vlan_of(&packet) else { return Some(packet) };
            if ethernet::vlan(packet.data()) == Some(vlan)
                && ethernet::take_tag(&mut packet).is_ok()
            {
                return Some(packet);
            }
            cx.discard(packet, UntagDrop::OtherVlan);
            None
        });
    }
}

/// Tags packets that leave by ports with a VLAN.
#[derive(Debug)]
pub struct Tag<'a> {
    /// The VLAN of each route's port number.
    vlans: &'a [Option<u16>],
    has_any: bool,
}

impl<'a> Tag<'a> {
    /// Tags with the VLAN of each port, in order.
    #[must_use]
    pub fn new(vlans: &'a [Option<u16>]) -> Self {
        Self { vlans, has_any: vlans.iter().any(Option::is_some) }
    }
}

impl<P: PacketBuf> BurstStage<Routed<P, Route>> for Tag<'_> {
    type Out = Routed<P, Route>;
    type Drop = TagDrop;

    fn process(
        &mut self,
        cx: &mut Cx<'_, TagDrop>,
        input: &mut Burst<Routed<P, Route>>,
        out: &mut Output<'_, Routed<P, Route>>,
    ) {
        if !self.has_any {
            return out.map(input, Some);
        }
        out.map(input, |mut item| {
            let vlan = self.vlans.get(usize::from(item.route.0)).copied().flatten();
            match vlan.map_or(Ok(()), |vlan| {
                ethernet::insert_tag(&mut item.packet, VlanTag::new(ETHERTYPE_VLAN, vlan))
            }) {
                Ok(()) => Some(item),
                Err(_) => {
                    cx.discard(item, TagDrop::NoHeadroom);
                    None
                }
            }
        });
    }
}
