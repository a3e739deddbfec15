//! `engine.require_hugepages`, for the mempools of ports.

use crate::config::Config;
use crate::failure::BadInput;
use hotloop::dpdk::{Mbuf, MempoolMemory, Port, RxQueue};
use hotloop::stage::{Burst, Device, Error, Limits, Source};
use std::sync::Arc;

/// An RX queue that only starts if its port's mempool meets the requirement. A port makes its
/// mempool when it starts, so the requirement can't be checked earlier.
#[derive(Debug)]
pub struct CheckedQueue<'a> {
    /// The queue.
    pub queue: RxQueue,
    /// The port of the queue.
    pub port: &'a Port,
    /// The port's name.
    pub name: &'a str,
    /// Whether the port's mempool must lie on hugepages.
    pub require_hugepages: bool,
}

impl Source for CheckedQueue<'_> {
    type Item = Mbuf;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<Mbuf>) -> usize {
        self.queue.poll(burst)
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.queue.start(limits)?;
        match self.port.mempool() {
            Some(mempool) if self.require_hugepages => check(self.name, mempool.memory()),
            _ => Ok(()),
        }
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.queue.devices()
    }

    fn lossless(&self) -> bool {
        self.queue.lossless()
    }

    fn waiting_count(&mut self) -> Option<usize> {
        self.queue.waiting_count()
    }

    fn finished(&self) -> bool {
        self.queue.finished()
    }
}

/// Checks that hugepages are available, by the arguments of DPDK's environment, if the
/// configuration requires them.
///
/// # Errors
/// If there are none.
pub fn check_arguments(eal: &[String], config: &Config) -> Result<(), BadInput> {
    let has_hugepages = !eal.is_empty() && !eal.iter().any(|argument| argument == "--no-huge");
    if config.engine.require_hugepages && !has_hugepages {
        return Err(BadInput::new(
            "engine.require_hugepages: mempools have no hugepages without EAL arguments or with \
             --no-huge; give EAL arguments after --, such as -m 1024, or leave it out",
        ));
    }
    Ok(())
}

/// Checks that a port's mempool is on hugepages.
fn check(port: &str, memory: MempoolMemory) -> Result<(), Error> {
    if memory.is_on_hugepages() {
        return Ok(());
    }
    let pages = memory.bytes.div_ceil(2 << 20);
    Err(Error::message(format!(
        "engine.require_hugepages: the mempool of port {port} got {memory}; reserve {pages} \
         hugepages of 2 MiB for it (/proc/sys/vm/nr_hugepages) and have EAL use them (arguments \
         after --, such as -m 1024, without --no-huge), or leave out require_hugepages"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_less_than_hugepages_is_refused_with_what_to_do() {
        let got = |page_bytes| MempoolMemory { bytes: 5 << 20, page_bytes, node: Some(0) };
        for (page_bytes, pages) in [(Some(4096), "4 KiB pages"), (None, "pages of unknown size")] {
            let refused = check("uplink", got(page_bytes)).unwrap_err().to_string();
            let start = format!("the mempool of port uplink got 5120 KiB on {pages}, node 0; ");
            let remedies = ["reserve 3 hugepages", "/proc/sys/vm/nr_hugepages", "-m 1024"];
            assert!(refused.contains(&start), "{refused}");
            assert!(remedies.iter().all(|remedy| refused.contains(remedy)), "{refused}");
        }
        for page_bytes in [2 << 20, 1 << 30] {
            assert!(check("uplink", got(Some(page_bytes))).is_ok());
        }
    }
}
