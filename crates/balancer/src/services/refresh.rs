//! Updates weights, health and blocks of a service table, with the same services and backends.
//! Shares with the previous table every part that hasn't changed.

use super::digest;
use super::{Choice, Maglevs, ServiceTable, Standing, Target, TargetId, TargetName};
use crate::maglev::Maglev;
use crate::spec::{AllDown, Backend, ServiceSpec, Spec};
use hotloop::packet::prefix::PrefixSet;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

/// A backend of a service, with its current state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub target: TargetId,
    pub address: IpAddr,
    pub weight: u32,
    pub is_up: bool,
}

/// The members of a service that get new connections, and how to choose one.
pub(super) struct Arranged {
    pub usable: Vec<bool>,
    pub choices: Arc<[Choice]>,
    pub maglev: Arc<Maglev>,
}

impl Arranged {
    /// Arranges the members of a service, which are in the order of its configuration.
    pub fn new(
        service: &ServiceSpec,
        members: &[Member],
        maglevs: &Maglevs,
        slot_count: u32,
    ) -> Self {
        let any_up = members.iter().any(|member| member.weight > 0 && member.is_up);
        let all_down_forwards = !any_up && service.all_down == AllDown::Forward;
        let is_usable = |member: &Member| member.weight > 0 && (member.is_up || all_down_forwards);
        let usable = members.iter().filter(|member| is_usable(member));
        let weights = usable.clone().map(|member| (member.address, member.weight)).collect();
        Self {
            choices: usable
                .map(|member| Choice { target: member.target, weight: member.weight })
                .collect(),
            usable: members.iter().map(is_usable).collect(),
            maglev: maglevs.table(weights, slot_count),
        }
    }
}

/// A [`Standing`] in the form for lookups: a backend without an entry costs no allocation.
pub(super) struct View<'a> {
    standing: &'a Standing,
    /// The addresses among those that are down.
    down: HashSet<IpAddr>,
}

impl<'a> View<'a> {
    pub fn new(standing: &'a Standing) -> Self {
        Self { standing, down: standing.down.iter().map(|name| name.address).collect() }
    }

    pub fn is_removed(&self, service: &ServiceSpec, address: IpAddr) -> bool {
        !self.standing.removed.is_empty()
            && self.standing.removed.contains_key(&TargetName::new(&service.name, address))
    }

    /// A backend's weight, and whether it is up.
    pub fn of(&self, service: &ServiceSpec, backend: &Backend) -> (u32, bool) {
        let Self { standing, down } = self;
        let address = backend.address;
        let weight = if standing.weights.is_empty() {
            None
        } else {
            standing.weights.get(&TargetName::new(&service.name, address)).copied()
        };
        let is_down = down.contains(&address)
            && standing.down.contains(&TargetName::new(&service.name, address));
        (weight.unwrap_or(backend.weight), !is_down)
    }
}

impl ServiceTable {
    /// The service table with the current weights, health and blocks; `None` if nothing has
    /// changed. A service without a change keeps all its parts.
    ///
    /// `spec` must be the one that this service table was built from, with the same backends taken
    /// out: other changes need a [`Builder`](super::Builder).
    #[must_use]
    pub fn refreshed(
        &self,
        spec: &Spec<'_>,
        standing: &Standing,
        maglevs: &Maglevs,
    ) -> Option<Self> {
        let view = View::new(standing);
        let mut next: Option<Self> = None;
        for (index, service) in spec.services.iter().enumerate() {
            let Some(members) = self.changed(index, service, &view) else { continue };
            let next = next.get_or_insert_with(|| self.clone());
            let slot_count = spec.balancer.maglev_slots;
            next.arrange(index, &members, Arranged::new(service, &members, maglevs, slot_count));
        }
        let address_of = |blocked: &Option<Arc<PrefixSet>>| blocked.as_ref().map(Arc::as_ptr);
        if address_of(&self.blocked) != address_of(&standing.blocked) {
            next.get_or_insert_with(|| self.clone()).blocked.clone_from(&standing.blocked);
        }
        next.map(|next| Self { serial: super::next_serial(), ..next })
    }

    /// The current members of the service at `index`, if any of them has changed.
    fn changed(&self, index: usize, service: &ServiceSpec, view: &View<'_>) -> Option<Vec<Member>> {
        let members = || {
            // A service's targets are its backends that were not taken out, in their order.
            let mut backends = service.backends.iter();
            self.services[index].targets.iter().filter_map(move |id| {
                let target = &self.targets[id.slot()];
                let backend = backends.find(|backend| backend.address == target.address())?;
                let (weight, is_up) = view.of(service, backend);
                Some((target, Member { target: *id, address: backend.address, weight, is_up }))
            })
        };
        let differs = |(target, member): (&Target, Member)| {
            (target.weight, target.is_up) != (member.weight, member.is_up)
        };
        members().any(differs).then(|| members().map(|(_, member)| member).collect())
    }

    /// Applies an arrangement to the service at `index`.
    pub(super) fn arrange(&mut self, index: usize, members: &[Member], arranged: Arranged) {
        for (member, is_usable) in members.iter().zip(arranged.usable) {
            let target = &mut self.targets[member.target.slot()];
            (target.weight, target.is_up) = (member.weight, member.is_up);
            target.is_usable = is_usable;
        }
        let service = &mut self.services[index];
        (service.choices, service.maglev) = (arranged.choices, arranged.maglev);
        let digest = digest::of_arranged(service, &self.targets);
        // The digest is a sum, so that a refresh need not read the other services.
        let others = self.digest.wrapping_sub(service.digest);
        self.digest = others.wrapping_add(digest);
        service.digest = digest;
        self.compare(index);
    }
}
