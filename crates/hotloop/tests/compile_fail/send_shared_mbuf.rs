use hotloop::dpdk::{SharedMbuf, TxQueue};
use hotloop::prelude::*;

pub fn send(queue: &mut TxQueue, shared: SharedMbuf) -> Result<usize, SharedMbuf> {
    let mut burst = Burst::<Packet>::new();
    burst.push(shared);
    Ok(queue.send(&mut burst))
}

pub fn main() {}
