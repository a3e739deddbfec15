use hotloop::prelude::*;

pub fn chain(port: &Port) {
    let received = source(|core| port.rx_queue(core));
    let forked = received.stage(|_| each(|packet: Packet| packet));
    let _ = forked.sink(|core| port.tx_queue(core));
}

pub fn main() {}
