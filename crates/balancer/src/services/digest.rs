//! Digests that operators compare between service tables.

use super::{Service, Target};
use crate::spec::ServiceSpec;
use std::hash::{Hash, Hasher};

/// FNV-1a: the same in all programs, whatever they were built with.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut fnv = Fnv(0xCBF2_9CE4_8422_2325);
    value.hash(&mut fnv);
    fnv.finish()
}

/// The digest of a service's values that a refresh doesn't change.
pub(super) fn of_configured(service: &ServiceSpec) -> u64 {
    let ServiceSpec { name, address, protocol, ports, scheduler, .. } = service;
    hash((name, format!("{address} {protocol} {ports} {scheduler:?}")))
}

/// The digest of a service's current state: the backends of new connections, and their weights.
pub(super) fn of_arranged(service: &Service, targets: &[Target]) -> u64 {
    let choice = |choice: &super::Choice| (targets[choice.target.slot()].address(), choice.weight);
    hash((service.configured_digest, service.choices.iter().map(choice).collect::<Vec<_>>()))
}
