use hotloop::dpdk::RxQueue;
use hotloop::prelude::*;

pub fn chain(_port: &Port, _queue: RxQueue) {
    let _ = source(move |_| Ok::<_, hotloop::Error>(_queue));
}

pub fn main() {}
