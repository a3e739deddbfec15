//! What a program that has ended its run leaves to its successor.

use super::inheritance::Inheritance;
use super::machine_time;
use super::successor::Successor;
use crate::announce::VipInterface;
use crate::exception::KernelInterface;
use crate::failure::Failure;
use std::os::fd::OwnedFd;

/// What is for the program that takes over from this one.
#[derive(Debug)]
pub struct Left {
    successor: Successor,
    known: Inheritance,
    files: Vec<OwnedFd>,
}

impl Left {
    /// What control knows, and the interfaces, which stay with what they have taken over.
    ///
    /// # Errors
    /// The process has no file left.
    pub fn new(
        (successor, mut known): (Successor, Inheritance),
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

    /// Hands it over. Nothing of this program may be in the way of the other one any more.
    ///
    /// # Errors
    /// The other one is gone: no program balances.
    pub fn hand_over(self) -> Result<(), String> {
        let closed = self.known.closed;
        hotloop_ops::give_back_cpus();
        self.successor.leave(&self.known, self.files)?;
        let ms = machine_time().saturating_sub(closed).as_secs_f64() * 1e3;
        tracing::info!(
            "replace: everything is handed over, {ms:.1} ms after the last packet was received"
        );
        Ok(())
    }
}
