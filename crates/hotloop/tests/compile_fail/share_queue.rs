use hotloop::dpdk::RxQueue;
use hotloop::prelude::*;

pub fn chain(_port: &Port, queue: RxQueue) {
    let _ = source(move |_| Ok::<_, hotloop::Error>(queue));
}

pub fn main() {}
