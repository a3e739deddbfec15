use hotloop::prelude::*;

pub fn chain(port: &Port) {
    let _ = source(|core| port.rx_queue(core).map_err(|error| error.to_string()));
}

pub fn main() {}
