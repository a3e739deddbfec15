use hotloop::dpdk::RxQueue;

fn give_to_a_thread<T: Send>(_: T) {}

pub fn share(queue: RxQueue) {
    give_to_a_thread(&queue);
}

pub fn main() {}
