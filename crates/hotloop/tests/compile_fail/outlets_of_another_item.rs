use hotloop::prelude::*;

pub fn end(chain: impl Chain<Out = Routed<Classified<Packet>, u8>>, port: &Port) {
    let _ = chain.sink(|core| port.tx_queue(core).map(|queue| outlets([(0, queue)])));
}

pub fn main() {}
