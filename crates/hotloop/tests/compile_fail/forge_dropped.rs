use hotloop::prelude::*;
use hotloop::stage::Dropped;

drop_reasons! { pub enum SieveDrop { Fine = "fine" } }

pub struct Sieve;

impl Stage<Packet> for Sieve {
    type Out = Packet;
    type Drop = SieveDrop;

    fn packet(&mut self, cx: &mut Cx<'_, SieveDrop>, packet: Packet) -> Verdict<Packet> {
        let dropped: Result<Packet, Dropped> = Err(Dropped(()));
        dropped
    }
}

pub fn main() {}
