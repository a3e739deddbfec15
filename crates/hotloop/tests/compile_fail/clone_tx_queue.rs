use hotloop::dpdk::{Error, Port, TxQueue};
use hotloop::stage::Core;

pub fn another(queue: TxQueue, port: &Port, core: &Core) -> Result<TxQueue, Error> {
    let second = Ok(queue.clone());
    drop((queue, port, core));
    second
}

pub fn main() {}
