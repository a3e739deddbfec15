use hotloop::dpdk::RxQueue;
use hotloop::prelude::*;

pub fn poll_on_two_threads(first: &mut RxQueue, second: &mut RxQueue) {
    let here = || first.poll(&mut Burst::new());
    let there = || second.poll(&mut Burst::new());
    std::thread::scope(|scope| drop((scope.spawn(here), scope.spawn(there))));
    second.poll(&mut Burst::new());
}

pub fn main() {}
