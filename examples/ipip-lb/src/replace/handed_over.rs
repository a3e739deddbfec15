//! The state of a program that has ended its run, for its successor.

use super::Inheritance;
use crate::announce::VipInterface;
use crate::exception::KernelInterface;
use crate::failure::Failure;
use hotloop_cluster::replace::Successor;
use std::os::fd::OwnedFd;

/// Everything for the program that takes over from this one.
#[derive(Debug)]
pub struct HandedOver {
    successor: Successor,
    known: Inheritance,
    files: Vec<OwnedFd>,
}

impl HandedOver {
    /// Collects control's state, and the interfaces, which stay with everything that they have
    /// taken over.
    ///
    /// # Errors
    /// If the process has no file left.
    pub fn new(
        successor: Successor,
        mut known: Inheritance,
        interfaces: Vec<KernelInterface>,
        vips: Option<VipInterface>,
    ) -> Result<Self, Failure> {
        let ports = interfaces.iter().map(KernelInterface::port);
        let ports = ports.chain(vips.as_ref().map(VipInterface::port));
        let shared = ports.map(|port| Ok((port.name().to_owned(), port.share()?)));
        let shared: std::io::Result<Vec<_>> = shared.collect();
        let shared = shared.map_err(|error| Failure::Run(format!("replace: {error}")))?;
        let (names, files) = shared.into_iter().unzip();
        known.interfaces = names;
        interfaces.into_iter().for_each(KernelInterface::leave);
        Ok(Self { successor, known, files })
    }

    /// Passes everything to the successor. Nothing of this program may still be in the successor's
    /// way.
    ///
    /// # Errors
    /// If the successor is gone: no program balances.
    pub fn hand_over(self) -> Result<(), String> {
        let closed = self.known.closed;
        hotloop_ops::give_back_cpus();
        self.successor.leave(&self.known, self.files)?;
        let ms = closed.elapsed_ms();
        tracing::info!(
            "replace: everything is handed over, {ms:.1} ms after the last packet was received"
        );
        Ok(())
    }
}
