use hotloop::prelude::*;

pub fn chain(port: &Port) {
    let received = source(|core| port.rx_queue(core));
    let routed = received.stage(|_| each(|packet: Packet| Routed { packet, route: 0 }));
    let _ = routed.sink(|core| port.tx_queue(core));
}

pub fn main() {}
