use hotloop::dpdk::RxQueue;
use hotloop::prelude::*;

pub fn chain(port: &Port, _queue: RxQueue) {
    let _ = source(|core| port.rx_queue(core));
}

pub fn main() {}
