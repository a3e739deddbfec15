use hotloop::dpdk::{Error, Port, RxQueue};
use hotloop::stage::Core;

pub fn another(queue: RxQueue, port: &Port, core: &Core) -> Result<RxQueue, Error> {
    let second = Ok(queue.clone());
    drop((queue, port, core));
    second
}

pub fn main() {}
