use hotloop::prelude::*;

pub fn end(chain: impl Chain<Out = Packet>, port: &Port) {
    let _ = chain.sink(|core| port.tx_queue(core));
}

pub fn main() {}
