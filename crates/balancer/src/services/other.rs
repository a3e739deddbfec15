//! A second service table, which peers may use: connections are compared with both.

use super::{Service, ServiceTable, next_serial};
use crate::spec::IcmpEcho;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::protocol;
use std::net::IpAddr;
use std::sync::Arc;

/// Another table, and facts for lookups in both.
#[derive(Clone, Debug)]
pub(super) struct Other {
    table: Arc<ServiceTable>,
    /// Whether both tables have the same rules, as is usual: then a service has the same index in
    /// both.
    has_same_rules: bool,
}

impl ServiceTable {
    /// Another table that peers may use to choose backends: the one that is being prepared, or the
    /// previous one. A connection that it places elsewhere is an exception, too.
    #[inline(always)]
    #[must_use]
    pub fn other(&self) -> Option<&Arc<Self>> {
        self.other.as_ref().map(|other| &other.table)
    }

    /// This table with an `other`, without the other table's own `other`. The result has a serial
    /// of its own.
    #[must_use]
    pub fn with_other(&self, other: Option<Arc<Self>>) -> Self {
        let alone = |other: Arc<Self>| match other.other {
            Some(_) => Arc::new(Self { other: None, ..(*other).clone() }),
            None => other,
        };
        let other = other
            .map(|other| Other { has_same_rules: self.rules == other.rules, table: alone(other) });
        Self { serial: next_serial(), other, ..self.clone() }
    }

    /// The services that take the packets of a client's flow, including echo requests if these are
    /// forwarded: in this table, and in the [`other`](Self::other) one.
    #[inline]
    #[must_use]
    pub fn services_of_flow(&self, key: &FlowKey) -> (Option<&Service>, Option<&Service>) {
        // With a branch for each family the address stays in registers. Assembled in memory, the
        // address could be read only after all of its parts were stored, and a walk would wait for
        // that at each slot.
        let (service, other) = match key {
            FlowKey::V4(key) => {
                self.services_of(key.destination().into(), key.protocol(), key.destination_port())
            }
            FlowKey::V6(key) => {
                self.services_of(key.destination().into(), key.protocol(), key.destination_port())
            }
        };
        if !is_echo(key.protocol()) {
            return (service, other);
        }
        let address = key.destination();
        let of_echo = || self.other().and_then(|other| other.service_of_echo(address));
        (service.or_else(|| self.service_of_echo(address)), other.or_else(of_echo))
    }

    /// Looks services up by the rules only.
    #[inline(always)]
    fn services_of(
        &self,
        address: IpAddr,
        protocol: u8,
        port: u16,
    ) -> (Option<&Service>, Option<&Service>) {
        let index = self.index_of(address, protocol, port);
        let other = self.other.as_ref().and_then(|Other { table, has_same_rules }| {
            let its_index =
                if *has_same_rules { index } else { table.index_of(address, protocol, port) };
            its_index.map(|index| &table.services[index])
        });
        (index.map(|index| &self.services[index]), other)
    }

    /// The service that takes echo requests to `address` if no service takes their protocol: any service
    /// of the address, if echo requests are forwarded.
    #[must_use]
    pub fn service_of_echo(&self, address: IpAddr) -> Option<&Service> {
        let is_forwarded = self.settings.icmp_echo == IcmpEcho::Forward;
        if is_forwarded { self.any_service_of(address) } else { None }
    }
}

/// Whether a protocol's flows are echo requests.
#[inline]
#[must_use]
pub const fn is_echo(protocol: u8) -> bool {
    matches!(protocol, protocol::ICMP | protocol::ICMPV6)
}
