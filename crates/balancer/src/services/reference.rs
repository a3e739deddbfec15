//! The reference tables, which all nodes share: connections are compared with them, and packets of
//! unknown connections go by them.

use super::{Service, ServiceTable, TargetId, next_serial};
use crate::spec::{IcmpEcho, Scheduler};
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4};
use hotloop::packet::ip::protocol;
use std::net::IpAddr;
use std::sync::Arc;

/// A reference table, and facts for lookups in it beside the table in use.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    table: Arc<ServiceTable>,
    /// Whether both tables have the same rules, as is usual: then a service has the same index in
    /// both.
    has_same_rules: bool,
}

/// The services that take the packets of a client's flow, if any: in the table in use, in the
/// reference table in use, and in the other one.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServicesOfFlow<'d> {
    /// In the table in use.
    pub service: Option<&'d Service>,
    /// In the [reference](ServiceTable::reference).
    pub reference: Option<&'d Service>,
    /// In the [other reference](ServiceTable::other_reference).
    pub other: Option<&'d Service>,
}

impl ServiceTable {
    /// Whether the nodes of a cluster share a reference table.
    #[inline]
    #[must_use]
    pub const fn has_reference(&self) -> bool {
        self.references[0].is_some()
    }

    /// The table that all nodes share: a connection that it places on another backend is an
    /// exception. Without a cluster, this table itself.
    #[inline(always)]
    #[must_use]
    pub fn reference(&self) -> &Self {
        self.references[0].as_ref().map_or(self, |reference| &reference.table)
    }

    /// The other reference table, while all nodes go over from one to the next: a connection that
    /// either places on another backend is an exception.
    #[inline(always)]
    #[must_use]
    pub fn other_reference(&self) -> Option<&Self> {
        self.references[1].as_ref().map(|reference| &*reference.table)
    }

    /// This table with these reference tables: the one in use, and the other one during a move. The
    /// result has a serial of its own.
    #[must_use]
    pub fn with_references(&self, references: [Option<&Arc<Self>>; 2]) -> Self {
        let references = references.map(|table| {
            let has_same_rules = self.rules == table?.rules;
            table.map(|table| Reference { table: Arc::clone(table), has_same_rules })
        });
        let mut next = Self { serial: next_serial(), references, ..self.clone() };
        (0..next.services.len()).for_each(|index| next.compare(index));
        next
    }

    /// Notes whether a service chooses as in the reference tables.
    pub(super) fn compare(&mut self, index: usize) {
        let service = &mut self.services[index];
        let chooses_alike = |Reference { table, has_same_rules }: &Reference| {
            let reference = table.services.get(index).filter(|_| *has_same_rules);
            reference.is_some_and(|reference| {
                service.shares_table(reference) && service.choices == reference.choices
            })
        };
        service.is_reference = self.references.iter().flatten().all(chooses_alike);
    }

    /// Whether a flow of TCP with this hash goes to this target by its hash, in this table, where it has
    /// this service, and in all reference tables.
    #[cold]
    #[inline(never)]
    pub(crate) fn all_choose(
        &self,
        service: &Service,
        key: &FlowKeyV4,
        hash: u32,
        target: TargetId,
    ) -> bool {
        let chooses = |service: &Service| {
            service.scheduler == Scheduler::Maglev && service.by_hash(hash) == Some(target)
        };
        let mut references = self.references.iter().flatten();
        key.protocol() == protocol::TCP
            && chooses(service)
            && references.all(|it| it.table.service_of_v4(key).is_some_and(chooses))
    }

    /// The services that take the packets of a client's flow, including echo requests if these are
    /// forwarded.
    #[inline]
    #[must_use]
    pub fn services_of_flow(&self, key: &FlowKey) -> ServicesOfFlow<'_> {
        // With a branch for each family the address stays in registers. Assembled in memory, the
        // address could be read only after all of its parts were stored, and a walk would wait for
        // that at each slot.
        let found = match key {
            FlowKey::V4(key) => {
                self.services_of(key.destination().into(), key.protocol(), key.destination_port())
            }
            FlowKey::V6(key) => {
                self.services_of(key.destination().into(), key.protocol(), key.destination_port())
            }
        };
        if !is_echo(key.protocol()) {
            return found;
        }
        let address = key.destination();
        ServicesOfFlow {
            service: found.service.or_else(|| self.service_of_echo(address)),
            reference: found.reference.or_else(|| self.reference().service_of_echo(address)),
            other: found.other.or_else(|| self.other_reference()?.service_of_echo(address)),
        }
    }

    /// Looks services up by the rules only.
    #[inline(always)]
    fn services_of<'d>(&'d self, address: IpAddr, protocol: u8, port: u16) -> ServicesOfFlow<'d> {
        let index = self.index_of(address, protocol, port);
        let service = index.map(|index| &self.services[index]);
        let of = |reference: &'d Reference| {
            let Reference { table, has_same_rules } = reference;
            let its_index =
                if *has_same_rules { index } else { table.index_of(address, protocol, port) };
            its_index.map(|index| &table.services[index])
        };
        let [reference, other] = &self.references;
        ServicesOfFlow {
            service,
            reference: reference.as_ref().map_or(service, of),
            other: other.as_ref().and_then(of),
        }
    }

    /// The service that takes echo requests to `address` if no service takes their protocol: any service
    /// of the address, if echo requests are forwarded.
    #[must_use]
    pub fn service_of_echo(&self, address: IpAddr) -> Option<&Service> {
        let is_forwarded = self.settings.icmp_echo == IcmpEcho::Forward;
        if is_forwarded { self.any_service_of(address) } else { None }
    }
}

impl Service {
    /// Whether a connection that begins here needs no check of reference tables: it goes by its hash,
    /// and all of them choose alike.
    #[inline(always)]
    #[must_use]
    pub(crate) const fn begins_plainly(&self) -> bool {
        matches!(self.scheduler, Scheduler::Maglev) && self.is_reference
    }
}

/// Whether a protocol's flows are echo requests.
#[inline]
#[must_use]
pub const fn is_echo(protocol: u8) -> bool {
    matches!(protocol, protocol::ICMP | protocol::ICMPV6)
}
