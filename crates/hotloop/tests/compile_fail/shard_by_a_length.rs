use hotloop::prelude::*;

pub fn chain(port: &Port) {
    let received = source(|core| port.rx_queue(core));
    let _ = received.shard_by(|packet| packet.len_bytes());
}

pub fn main() {}
