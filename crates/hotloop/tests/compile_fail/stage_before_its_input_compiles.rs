use hotloop::prelude::*;

pub struct ByFlow;

impl Stage<Classified<Packet>> for ByFlow {
    type Out = Packet;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, p: Classified<Packet>) -> Verdict<Packet> {
        Ok(p.packet)
    }
}

pub fn chain(port: &Port) {
    let received = source(|core| port.rx_queue(core));
    let classified = received.stage(|_| Classify::innermost().seeded(7));
    let _ = classified.stage(|_| ByFlow);
}

pub fn main() {}
