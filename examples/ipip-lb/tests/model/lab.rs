//! The balancer under test, fed and examined like the model.

use super::net::Standing;
use super::rules::{Input, Outcome, Sent, Stations};
use super::scene::health;
use super::table::{Listed, State};
use hotloop::engine::{Publisher, Routed, publish};
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::{Depth, classify_packet};
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::memory::MemPacket;
use hotloop::stage::{BurstStage, Classified, Tagged};
use hotloop::testing::{Bench, bench_burst};
use hotloop_balancer::balance::{
    Balance, BalanceDrop, BalancerConfig, CLIENTS_MAX, Egress, Egresses, Route,
};
use hotloop_balancer::counts::WorkerCounts;
use hotloop_balancer::services::{self, Builder, Found, Removal, ServiceTable, TargetName};
use ipip_lb::config::Config;
use ipip_lb::overrides::Overrides;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub const STATIONS: Stations = Stations {
    client: ([2, 0, 0, 0, 9, 1], [2, 0, 0, 0, 9, 3]),
    backend: ([2, 0, 0, 0, 9, 4], [2, 0, 0, 0, 9, 2]),
};

const TO_CLIENTS: Route = Route(0);
const TO_BACKENDS: Route = Route(1);

/// A worker's balancer on the bench, with its control.
pub struct Lab {
    bench: Bench<Balance<MemPacket>>,
    counts: Arc<[WorkerCounts]>,
    worker: usize,
    builder: Builder,
    publisher: Publisher<ServiceTable>,
    connections_max: usize,
}

impl Lab {
    pub fn new(config: &Config, worker: usize) -> Self {
        let mut builder = Builder::new(&config.services);
        let first =
            builder.build(&config.spec(), &services::Standing::default()).expect("room for few");
        let slot_capacity = builder.slot_capacity();
        let workers = 0..config.engine.workers;
        let counts: Arc<[_]> = workers.map(|_| WorkerCounts::new(slot_capacity)).collect();
        let (publisher, subscribers) = publish(Arc::new(first));
        let egress = |route, (source, destination): ([u8; 6], [u8; 6])| Egress {
            route,
            source: MacAddress::new(source),
            destination: MacAddress::new(destination),
        };
        let balance = Balance::new(BalancerConfig {
            services: subscribers.subscribe(),
            egresses: Egresses {
                clients: egress(TO_CLIENTS, STATIONS.client),
                backends: egress(TO_BACKENDS, STATIONS.backend),
            },
            counts: Arc::clone(&counts),
            worker,
            connections_max: config.balancer.connections_max,
            slot_capacity,
            clients_max: CLIENTS_MAX,
            node: None,
            mailbox: None,
            sharing: None,
            table_seed: None,
        });
        let balance = balance.expect("memory for few connections");
        // Packets are classified before, or by the balancer.
        let bench = bench_burst(if worker == 0 { balance.classifying() } else { balance });
        let connections_max = config.balancer.connections_max;
        Self { bench, counts, worker, builder, publisher, connections_max }
    }

    /// Switches the balancer to another configuration or standing.
    pub fn renew(&mut self, config: &Config, standing: &Standing) -> Outcome {
        let name =
            |(number, address): &_| TargetName { service: format!("s{number}"), address: *address };
        let removal = |is_flushed| if is_flushed { Removal::Flush } else { Removal::Rebalance };
        let overrides = Overrides {
            blocked: None,
            down: standing.down.iter().map(|(number, it)| (*it, health(*number))).collect(),
            weights: standing.weights.iter().map(|(key, weight)| (name(key), *weight)).collect(),
            removed: standing.removed.iter().map(|(key, it)| (name(key), removal(*it))).collect(),
        };
        let next =
            self.builder.build(&config.spec(), &overrides.standing(config)).expect("room for few");
        self.publisher.publish(Arc::new(next));
        let outcome = self.tick();
        assert!(self.publisher.collect(), "the only worker has taken it up");
        for slot in self.builder.settle() {
            self.counts[self.worker].clear(slot as usize);
        }
        outcome
    }

    /// Takes enough turns for the balancer to examine every connection.
    pub fn let_look_at_all(&mut self) {
        // It examines two slots per turn, and each of the two tables has less than twice its
        // capacity of slots.
        for _ in 0..2 * self.connections_max + 30 {
            assert_eq!(self.tick(), Outcome::default());
        }
    }

    pub fn advance(&mut self, duration: Duration) {
        self.bench.advance(duration);
    }

    pub fn tick(&mut self) -> Outcome {
        self.counted(|bench| bench.tick::<Classified<MemPacket>>())
    }

    pub fn finish(&mut self) -> Outcome {
        self.counted(|bench| bench.finish::<Classified<MemPacket>>())
    }

    pub fn feed(&mut self, inputs: &[Input]) -> Outcome {
        let seed = self.bench.stage().services().settings.hashes.seed();
        let items = inputs.iter().map(|input| {
            let packet = MemPacket::with_room(&input.frame, input.headroom_bytes, 128);
            let layout = classify_packet(&packet, Depth::Innermost, &seed);
            Tagged::new(packet, layout)
        });
        self.counted(|bench| bench.feed_items(items))
    }

    pub fn held(&self) -> usize {
        self.bench.stage().held()
    }

    fn counted(
        &mut self,
        call: impl FnOnce(
            &mut Bench<Balance<MemPacket>>,
        ) -> hotloop::testing::Outcome<Routed<MemPacket, Route>, BalanceDrop>,
    ) -> Outcome {
        let counts = |it: &WorkerCounts| {
            [&it.admitted, &it.stateless, &it.to_clients, &it.replies_known, &it.answered]
                .map(hotloop::stage::Counter::count)
        };
        let before = counts(&self.counts[self.worker]);
        let outcome = call(&mut self.bench);
        let after = counts(&self.counts[self.worker]);
        let [admitted, stateless, to_clients, replies_known, answered] =
            std::array::from_fn(|index| after[index] - before[index]);
        let dropped = outcome.drops().into_iter().collect();
        let created = outcome.created();
        let sent = outcome
            .packets()
            .iter()
            .map(|it| Sent { to_client: it.route == TO_CLIENTS, frame: it.packet.data().to_vec() });
        let sent = sent.collect();
        Outcome { sent, dropped, created, admitted, stateless, to_clients, replies_known, answered }
    }

    /// The connections in the tables, including those whose time is up.
    pub fn listing(&self) -> HashMap<FlowKey, Listed> {
        let services = self.bench.stage().services();
        let connections = self.bench.stage().connections();
        // Its size is known: a map that grows is rehashed each time.
        let mut listing = HashMap::with_capacity(connections.len());
        let connections = connections.iter();
        listing.extend(connections.map(|(key, connection)| {
            let target = match services.target(connection.target) {
                Found::Active(target) => target.service.map(|index| {
                    let name = &services.all()[index as usize].name;
                    (name[1..].parse().expect("s and a number"), target.address())
                }),
                Found::Removed | Found::Flushed => None,
            };
            let state = match connection.state() {
                hotloop_balancer::connection::State::Opening => State::Opening,
                hotloop_balancer::connection::State::Established => State::Established,
                hotloop_balancer::connection::State::Closing => State::Closing,
                hotloop_balancer::connection::State::Udp => State::Udp,
                hotloop_balancer::connection::State::Other => State::Other,
            };
            (key, Listed { target, state, is_exception: connection.is_exception() })
        }));
        listing
    }
}
