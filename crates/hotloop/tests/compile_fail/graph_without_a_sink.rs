use hotloop::prelude::*;

pub fn plan(port: &Port) {
    let chain = source(|core| port.rx_queue(core));
    let _ = Engine::plan(chain, Deployment::run_to_completion(1));
}

pub fn main() {}
