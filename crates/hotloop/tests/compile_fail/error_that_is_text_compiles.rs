use hotloop::prelude::*;

pub fn chain(port: &Port) {
    let _ = source(|core| port.rx_queue(core));
}

pub fn main() {}
