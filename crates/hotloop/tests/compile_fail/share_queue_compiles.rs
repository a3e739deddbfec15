use hotloop::dpdk::RxQueue;
use hotloop::prelude::*;

pub fn chain(_port: &Port, _queue: RxQueue) {
    let _ = source(|core| _port.rx_queue(core));
}

pub fn main() {}
