use hotloop::prelude::*;

drop_reasons! { pub enum EmptyDrop { Empty = "empty" } }

pub struct NoEmpty;

impl Stage<Packet> for NoEmpty {
    type Out = Packet;
    type Drop = EmptyDrop;

    fn packet(&mut self, cx: &mut Cx<'_, EmptyDrop>, packet: Packet) -> Verdict<Packet> {
        if packet.data().is_empty() {
            cx.drop(packet, EmptyDrop::Empty);
        }
        Ok(packet)
    }
}

pub fn main() {}
