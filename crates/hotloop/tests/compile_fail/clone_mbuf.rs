use hotloop::dpdk::{Mbuf, SharedMbuf};

pub fn twice(packet: Mbuf, shared: SharedMbuf) {
    let second = packet.clone();
    drop((packet, shared, second));
}

pub fn main() {}
