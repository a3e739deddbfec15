//! The choice of a flow's backend.

use super::net::{Target, client_hash};
use super::rules::Model;
use hotloop_balancer::spec::Scheduler;
use std::collections::HashMap;
use std::net::IpAddr;

impl Model {
    /// The choice of every balancer with this configuration.
    pub fn consistent(
        &mut self,
        service: usize,
        client: IpAddr,
        hash: u32,
    ) -> Result<Target, &'static str> {
        if self.net.scheduler(service) != Scheduler::Source {
            let target = self.net.by_hash(service, hash).ok_or("no_backend")?;
            return self.other_than_client(service, target, client, hash);
        }
        let hash = client_hash(&self.net.balancer, client);
        let kept = self.kept_target(service, client);
        let target = kept.or_else(|| self.net.by_hash(service, hash)).ok_or("no_backend")?;
        self.other_than_client(service, target, client, hash)
    }

    /// A backend that is the client itself gets nothing from itself. Each other permitted backend
    /// has its weight's number of places in a row, and the hash selects a place in the row.
    pub fn other_than_client(
        &mut self,
        service: usize,
        target: Target,
        client: IpAddr,
        hash: u32,
    ) -> Result<Target, &'static str> {
        if target.address != client {
            return Ok(target);
        }
        let others = self.net.services[service].usable.iter().filter(|it| it.0.address != client);
        let row: Vec<_> =
            others.flat_map(|(it, weight)| std::iter::repeat_n(*it, *weight as usize)).collect();
        if row.is_empty() {
            self.met("choice: nobody but the client itself");
            return Err("tunnel_loop");
        }
        self.met("choice: not the client itself");
        Ok(row[((u64::from(hash) * row.len() as u64) >> 32) as usize])
    }

    /// The backend that a client keeps, if it still takes connections.
    fn kept_target(&mut self, service: usize, client: IpAddr) -> Option<Target> {
        let id = self.net.services[service].id;
        let persistence_ns =
            u64::from(self.net.services[service].config.persistence_s) * 1_000_000_000;
        if let Some((target, since)) = self.kept.get(&(id, client)).copied() {
            if persistence_ns == 0 || self.now - since >= persistence_ns {
                self.met("persistence: over");
            } else if !self.net.is_usable(target) {
                self.met("persistence: backend gone");
            } else {
                self.met("persistence: kept");
                return Some(target);
            }
        }
        None
    }

    /// The choice of the service's scheduler for a new connection.
    pub fn scheduled(
        &mut self,
        service: usize,
        client: IpAddr,
        hash: u32,
    ) -> Result<Target, &'static str> {
        if self.net.services[service].is_all_down {
            self.met("all down: forwarded");
        }
        let target = match self.net.scheduler(service) {
            Scheduler::Maglev => {
                self.met("scheduler: maglev");
                self.net.by_hash(service, hash)
            }
            Scheduler::Source => {
                self.met("scheduler: source");
                let target = self.consistent(service, client, hash)?;
                if self.net.services[service].config.persistence_s > 0 {
                    let id = self.net.services[service].id;
                    self.kept.insert((id, client), (target, self.now));
                }
                return Ok(target);
            }
            Scheduler::RoundRobin => self.next_in_turn(service),
            Scheduler::LeastConnections => self.least_busy(service),
        };
        self.other_than_client(service, target.ok_or("no_backend")?, client, hash)
    }

    fn next_in_turn(&mut self, service: usize) -> Option<Target> {
        self.met("scheduler: round-robin");
        let usable = self.net.services[service].usable.clone();
        let sum: i64 = usable.iter().map(|(_, weight)| i64::from(*weight)).sum();
        for (target, weight) in &usable {
            *self.credits.entry(*target).or_default() += i64::from(*weight);
        }
        let most = usable.iter().map(|(target, _)| self.credits[target]).max()?;
        let winner = usable.iter().map(|(it, _)| *it).find(|it| self.credits[it] == most)?;
        *self.credits.get_mut(&winner)? -= sum;
        Some(winner)
    }

    /// Connections whose time is up count for as long as they are in the balancer's table:
    /// `check_table` takes these over before each burst.
    fn least_busy(&mut self, service: usize) -> Option<Target> {
        self.met("scheduler: least-connections");
        let mut counts: HashMap<Target, u64> = HashMap::new();
        for connection in self.connections.values() {
            *counts.entry(connection.target).or_default() += 1;
        }
        let count = |target: &Target| counts.get(target).copied().unwrap_or(0);
        let usable = &self.net.services[service].usable;
        let is_less = |(target, weight): &(Target, u32), (other, other_weight): &(Target, u32)| {
            count(target) * u64::from(*other_weight) < count(other) * u64::from(*weight)
        };
        let first = usable.first()?;
        let winner =
            usable.iter().fold(first, |best, it| if is_less(it, best) { it } else { best });
        Some(winner.0)
    }

    /// The candidate to which the balancer sent the current packet, if it is one.
    pub fn follow(&self, candidates: &[Target]) -> Option<Target> {
        let seen = self.observed_destination()?;
        candidates.iter().find(|it| it.address == seen).copied()
    }
}
