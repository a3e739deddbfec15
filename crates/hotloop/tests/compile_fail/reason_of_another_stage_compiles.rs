use hotloop::prelude::*;

drop_reasons! { pub enum EmptyDrop { Empty = "empty" } }
drop_reasons! { pub enum OtherDrop { Other = "other" } }

pub struct None;

impl Stage<Packet> for None {
    type Out = Packet;
    type Drop = EmptyDrop;

    fn packet(&mut self, cx: &mut Cx<'_, EmptyDrop>, packet: Packet) -> Verdict<Packet> {
        cx.drop(packet, EmptyDrop::Empty)
    }
}

pub fn main() {}
