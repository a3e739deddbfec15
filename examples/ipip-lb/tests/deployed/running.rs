//! A running balancer, stepped by hand.

use super::Sent;
use hotloop::engine::{Assembly, Deployment, ListPage, Report};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::protocol;
use hotloop::stage::Instant;
use hotloop::testing::MemoryPort;
use hotloop_balancer::balance::{Filter, Query, QueryPage, Row};
use hotloop_balancer::connection::{Connection, State};
use hotloop_balancer::counts::WorkerCounts;
use hotloop_balancer::exception_mover::{ExceptionMover, Pulled};
use hotloop_balancer::exceptions::{Change, Record};
use hotloop_balancer::services::{Found, Removal, TargetName};
use ipip_lb::config::Config;
use ipip_lb::network_function::ControlHandles;
use ipip_lb::overrides::Overrides;
use std::sync::Arc;
use std::time::Duration;

/// The port numbers for [`Running::feed_at`].
pub const CLIENTS: usize = 0;
pub const BACKENDS: usize = 1;

/// A running balancer.
pub struct Running<'a> {
    assembly: Assembly<'a>,
    ports: [MemoryPort; 2],
    now: Instant,
    pub deployment: Deployment,
    pub config: Config,
    pub overrides: Overrides,
    pub handles: ControlHandles,
    pub exceptions: ExceptionMover,
}

impl<'a> Running<'a> {
    pub fn new(
        assembly: Assembly<'a>,
        ports: [MemoryPort; 2],
        deployment: Deployment,
        config: Config,
        handles: ControlHandles,
        exceptions: ExceptionMover,
    ) -> Self {
        let (now, overrides) = (Instant::from_ns(1_000_000_000), Overrides::default());
        Self { assembly, ports, now, deployment, config, overrides, handles, exceptions }
    }

    /// The taps of its cores.
    pub fn taps(&self) -> hotloop::engine::Taps {
        self.assembly.taps()
    }

    /// Ends the run, and draws up its account.
    pub fn finish(self) -> Report {
        let report = self.assembly.finish(self.now);
        self.ports.iter().for_each(|port| drop(port.take_all_sent()));
        report
    }

    /// Lets frames arrive at the clients' port, on the queue of the first core, and returns the
    /// packets that leave.
    pub fn feed(&mut self, frames: &[Vec<u8>]) -> Vec<Sent> {
        self.feed_at(CLIENTS, 0, frames)
    }

    /// Lets frames arrive at a port, on one queue.
    pub fn feed_at(&mut self, port: usize, queue_index: usize, frames: &[Vec<u8>]) -> Vec<Sent> {
        self.ports[port].feed(queue_index, frames.iter().cloned());
        self.step();
        self.sent()
    }

    /// Lets frames arrive at the clients' port, one after the other, each on the next queue.
    pub fn feed_spread(&mut self, frames: &[Vec<u8>]) -> Vec<Sent> {
        let receiver_count = self.deployment.cores_in(0);
        let mut sent = Vec::new();
        for (index, frame) in frames.iter().enumerate() {
            let frame = std::slice::from_ref(frame);
            sent.extend(self.feed_at(CLIENTS, index % receiver_count, frame));
        }
        sent
    }

    /// Lets a frame arrive; one must leave.
    pub fn one(&mut self, frame: impl Into<Vec<u8>>) -> Sent {
        let frame = frame.into();
        let sent = self.feed(std::slice::from_ref(&frame));
        assert_eq!(sent.len(), 1, "{frame:02x?}: {sent:02x?}");
        sent[0].clone()
    }

    /// Lets a frame arrive from a backend; one must leave.
    pub fn answer(&mut self, frame: impl Into<Vec<u8>>) -> Sent {
        let frame = frame.into();
        let queue_index = self.deployment.cores_in(0) - 1;
        let sent = self.feed_at(BACKENDS, queue_index, std::slice::from_ref(&frame));
        assert_eq!(sent.len(), 1, "{frame:02x?}: {sent:02x?}");
        sent[0].clone()
    }

    /// Lets a frame arrive; no packet may leave.
    pub fn none(&mut self, frame: impl Into<Vec<u8>>) {
        let frame = frame.into();
        let sent = self.feed(std::slice::from_ref(&frame));
        assert_eq!(sent, [], "{frame:02x?}");
    }

    /// Lets a frame arrive; returns the backend that it went to.
    pub fn backend(&mut self, frame: impl Into<Vec<u8>>) -> String {
        self.one(frame).backend()
    }

    /// Lets time pass, and updates the workers' clocks.
    pub fn advance(&mut self, duration: Duration) -> Vec<Sent> {
        self.now = self.now + duration;
        self.step();
        self.sent()
    }

    /// Its claims for other nodes.
    pub fn changes(&mut self) -> Vec<Record> {
        let mut changes = Vec::new();
        for _ in 0..4 {
            self.exceptions.turn(|pulled| {
                let Pulled::Changes(found) = pulled else { panic!("there is no walk") };
                changes.extend_from_slice(found);
                true
            });
            (0..100).for_each(|_| self.step());
        }
        changes
    }

    /// Takes another node's changes of its exceptions.
    pub fn import(&mut self, changes: &[Change]) {
        assert_eq!(self.exceptions.import(&self.handles.services, changes), changes.len());
        assert!(self.changes().is_empty());
    }

    /// Switches the workers to the current configuration and standing.
    pub fn reload(&mut self) {
        let table = self
            .handles
            .builder
            .build(&self.config.spec(), &self.overrides.standing(&self.config))
            .unwrap();
        let table = Arc::new(table);
        self.handles.services = Arc::clone(&table);
        self.handles.publisher.publish(table);
        self.step();
        assert!(self.handles.publisher.collect());
        for slot in self.handles.builder.settle() {
            self.handles.counts.iter().for_each(|counts| counts.clear(slot as usize));
        }
    }

    /// Switches the workers to another configuration.
    pub fn configure(&mut self, config: &str) {
        let engine = self.config.engine;
        self.config = Config::parse("lb.toml", config).unwrap_or_else(|error| panic!("{error}"));
        self.config.engine = engine;
        self.reload();
    }

    /// Sets another weight of a backend.
    pub fn weigh(&mut self, service: &str, address: &str, weight: u32) {
        self.overrides.weights.insert(target_name(service, address), weight);
        self.reload();
    }

    /// Takes a backend out.
    pub fn remove(&mut self, service: &str, address: &str, removal: Removal) {
        self.overrides.removed.insert(target_name(service, address), removal);
        self.reload();
    }

    /// Makes a backend pass its health checks, or fail them.
    pub fn set_health(&mut self, service: &str, address: &str, is_up: bool) {
        let health = self.config.health.get(service).cloned().expect("a service that is probed");
        let key = (address.parse().unwrap(), health);
        match is_up {
            true => assert!(self.overrides.down.remove(&key)),
            false => assert!(self.overrides.down.insert(key)),
        }
        self.reload();
    }

    /// The sum of a count over the workers.
    pub fn count(&self, of: impl Fn(&WorkerCounts) -> u64) -> u64 {
        self.handles.counts.iter().map(of).sum()
    }

    pub fn admitted(&self) -> u64 {
        self.count(|it| it.admitted.count())
    }

    pub fn stateless(&self) -> u64 {
        self.count(|it| it.stateless.count())
    }

    /// Each worker's entry for a connection, queried like control does.
    fn known(&mut self, key: &FlowKey) -> Vec<Option<Connection>> {
        let mut known = Vec::new();
        for worker in 0..self.deployment.cores_in(1) {
            let page = self.filled(worker, Box::new(ListPage::new(Query::Flow(*key), 1)));
            match page.rows() {
                [Row::Flow(of, connection)] if of == key => known.push(*connection),
                other => panic!("{other:?}"),
            }
        }
        known
    }

    /// Has a worker fill a page.
    fn filled(&mut self, worker: usize, page: QueryPage) -> QueryPage {
        self.handles.asker.ask(worker, page).unwrap();
        loop {
            self.step();
            if let Some(page) = self.handles.asker.answer(worker) {
                return page;
            }
        }
    }

    /// The connection of a flow from a client to a service; at most one worker knows it.
    pub fn connection(&mut self, protocol: u8, client: &str, vip: &str) -> Option<Connection> {
        let (client, vip) = (client.parse().unwrap(), vip.parse().unwrap());
        let key = FlowKey::new(client, vip, protocol).unwrap();
        let known: Vec<_> = self.known(&key).into_iter().flatten().collect();
        assert!(known.len() <= 1, "{known:?}");
        known.first().copied()
    }

    /// The state of a TCP connection.
    pub fn state(&mut self, client: &str, vip: &str) -> Option<State> {
        self.connection(protocol::TCP, client, vip).map(|connection| connection.state())
    }

    /// The backend of a TCP connection.
    pub fn remembered(&mut self, client: &str, vip: &str) -> Option<String> {
        let connection = self.connection(protocol::TCP, client, vip)?;
        match self.handles.services.target(connection.target) {
            Found::Active(target) => Some(target.address().to_string()),
            Found::Removed | Found::Flushed => None,
        }
    }

    /// All connections of each worker, queried like control does.
    pub fn connections(&mut self) -> Vec<(usize, FlowKey, Connection)> {
        let mut connections = Vec::new();
        for worker in 0..self.deployment.cores_in(1) {
            let mut page = Box::new(ListPage::new(Query::Matching(Filter::default()), usize::MAX));
            while !page.is_over() {
                page.turn_page(usize::MAX);
                page = self.filled(worker, page);
                assert_eq!(page.matching_count(), page.rows().len() as u64);
                connections.extend(page.rows().iter().map(|row| match row {
                    Row::Matching(key, connection) => (worker, *key, *connection),
                    Row::Flow(..) => panic!("{row:?}"),
                }));
            }
        }
        connections
    }

    /// Steps every core until nothing moves any more.
    fn step(&mut self) {
        let mut idle_rounds = 0;
        while idle_rounds < 2 {
            let core_count = self.assembly.core_count();
            let moved: usize = (0..core_count).map(|core| self.assembly.step(core, self.now)).sum();
            idle_rounds = if moved == 0 { idle_rounds + 1 } else { 0 };
        }
        assert!(!self.assembly.has_panicked());
    }

    /// The frames sent since the last call: to clients first.
    fn sent(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        for (port, to_client) in self.ports.iter().zip([true, false]) {
            let frames = port.take_all_sent().into_iter();
            sent.extend(frames.map(|frame| Sent { to_client, frame: frame.bytes }));
        }
        sent
    }
}

fn target_name(service: &str, address: &str) -> TargetName {
    TargetName { service: service.to_owned(), address: address.parse().unwrap() }
}
