use hotloop::prelude::*;

pub fn answer(chain: impl Chain<Out = Fork<Packet, Packet>>, port: &Port) {
    let _ = chain.exit(|core| port.tx_queue(core));
}

pub fn main() {}
