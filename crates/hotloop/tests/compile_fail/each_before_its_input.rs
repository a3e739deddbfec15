use hotloop::prelude::*;

pub fn chain(port: &Port) {
    let received = source(|core| port.rx_queue(core));
    let _ = received.stage(|_| each(|packet: Classified<Packet>| packet));
}

pub fn main() {}
