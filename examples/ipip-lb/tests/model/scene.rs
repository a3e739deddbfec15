//! Random configurations, and their changes while the balancer runs.

use super::net::{Standing, number};
use hotloop::engine::Idle;
use hotloop::packet::prefix::Prefix;
use hotloop::testing::Rng;
use hotloop_balancer::spec::{
    AllDown, Backend, Balancer, IcmpEcho, Limits, Ports, Protocol, Scheduler, ServiceSpec, Side,
    Timeouts,
};
use hotloop_health::settings::{Health, Probe, Via};
use ipip_lb::config::{Config, DeploymentKind, Engine, NextHop, Port};
use std::collections::HashMap;
use std::net::IpAddr;

pub const OWN_V4: &str = "192.0.2.1";
pub const OWN_V6: &str = "2001:db8::1";

const ADDRESSES: [&str; 14] = [
    "203.0.113.8",
    "203.0.113.9",
    "203.0.113.10",
    "203.0.113.11",
    "203.0.113.8/31",
    "203.0.113.8/30",
    "203.0.113.8/29",
    "2001:db8:f::8",
    "2001:db8:f::9",
    "2001:db8:f::a",
    "2001:db8:f::b",
    "2001:db8:f::8/127",
    "2001:db8:f::8/126",
    "2001:db8:f::8/125",
];

const PORTS: [Ports; 8] = [
    Ports::Any,
    Ports::Any,
    Ports::Any,
    Ports::Range { first: 80, last: 80 },
    Ports::Range { first: 53, last: 53 },
    Ports::Range { first: 80, last: 81 },
    Ports::Range { first: 1, last: 1024 },
    Ports::Range { first: 8000, last: 8005 },
];

/// The special condition of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Style {
    /// Tables are ample.
    Ample,
    /// Some services choose by backends' numbers of connections, so no packet that reaches a
    /// service may be dropped after that choice, because the drop would hide it.
    LeastConnections,
    /// Tables of a few connections, and only schedulers with consistent choices, for the same
    /// reason.
    Tiny,
}

/// A sequence of configurations.
#[derive(Debug)]
pub struct Scene {
    rng: Rng,
    pub style: Style,
    pub config: Config,
    pub standing: Standing,
    /// The number of the next service.
    service_next: u32,
}

pub fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.index(from.len())]
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

impl Scene {
    pub fn new(mut rng: Rng) -> Self {
        let style = pick(
            &mut rng,
            &[Style::Ample, Style::Ample, Style::Ample, Style::LeastConnections, Style::Tiny],
        );
        let engine = Engine {
            deployment: DeploymentKind::RunToCompletion,
            dispatchers: 1,
            workers: 1 + rng.index(3),
            idle: Idle::Spin,
            require_hugepages: false,
            worker_stall_ms_max: 1000,
        };
        let balancer = balancer(&mut rng, style);
        let port = Port {
            name: "uplink".to_owned(),
            device: "net_null0".to_owned(),
            device_line: 1,
            next_hop: NextHop::Mac([2, 0, 0, 0, 9, 2]),
            side: Side::Both,
            accept_any_mac: false,
            kernel_interface: None,
            kernel_peers: Vec::new(),
            takeover: false,
            vlan: None,
            settings: Default::default(),
        };
        let config = Config {
            engine,
            balancer,
            limits: Limits::default(),
            ports: vec![port],
            services: Vec::new(),
            health: HashMap::new(),
            nested_backends: Vec::new(),
            announce: None,
            cluster: None,
            store: None,
            operator_file: None,
            metrics: Default::default(),
            quorum: None,
        };
        let standing = Standing::default();
        let mut scene = Self { rng, style, config, standing, service_next: 0 };
        for _ in 0..=scene.rng.index(6) {
            scene.add_service();
        }
        scene
    }

    /// Makes one change.
    pub fn churn(&mut self) {
        match self.rng.index(10) {
            0..4 => self.reload(),
            4 | 5 => self.set_weight(),
            6 | 7 => self.remove_backend(),
            _ => self.change_health(),
        }
    }

    fn add_service(&mut self) {
        let rng = &mut self.rng;
        let service = ServiceSpec {
            name: format!("s{}", self.service_next),
            address: prefix(pick(rng, &ADDRESSES)),
            protocol: pick(rng, &[Protocol::Tcp, Protocol::Udp, Protocol::Any, Protocol::Any]),
            ports: pick(rng, &PORTS),
            scheduler: scheduler(rng, self.style),
            persistence_s: persistence_s(rng, self.style),
            all_down: pick(rng, &[AllDown::Forward, AllDown::Drop]),
            new_connections_per_second_max: None,
            backends: Vec::new(),
        };
        let health = rng.permille(700).then(|| health(self.service_next));
        if self.is_taken(&service) {
            return;
        }
        self.service_next += 1;
        self.config.health.extend(health.map(|health| (service.name.clone(), health)));
        self.config.services.push(service);
        let last = self.config.services.len() - 1;
        for _ in 0..self.rng.index(6) {
            self.add_backend(last);
        }
    }

    /// Whether another service has the same address, protocol and ports.
    fn is_taken(&self, service: &ServiceSpec) -> bool {
        self.config.services.iter().any(|other| {
            (other.address, other.protocol, other.ports)
                == (service.address, service.protocol, service.ports)
        })
    }

    fn add_backend(&mut self, service: usize) {
        let rng = &mut self.rng;
        let address = match rng.permille(600) {
            true => format!("10.0.0.{}", 1 + rng.index(6)),
            false => format!("2001:db8:b::{}", 1 + rng.index(4)),
        };
        let address: IpAddr = address.parse().expect("an address");
        let weight = pick(rng, &[0, 1, 1, 1, 2, 3, 5]);
        let backends = &mut self.config.services[service].backends;
        if backends.iter().all(|it| it.address != address) {
            let at = self.rng.index(backends.len() + 1);
            backends.insert(at, Backend { address, weight });
        }
    }

    /// Changes the file, and reads it again.
    fn reload(&mut self) {
        self.standing.weights.clear();
        self.standing.removed.clear();
        for _ in 0..=self.rng.index(3) {
            self.edit();
        }
    }

    fn edit(&mut self) {
        let service = self.rng.index(self.config.services.len());
        match self.rng.index(10) {
            0 => self.add_service(),
            1 if self.config.services.len() > 1 => {
                self.config.services.remove(service);
            }
            2 | 3 => self.add_backend(service),
            4 | 5 => {
                let (rng, backends) = (&mut self.rng, &mut self.config.services[service].backends);
                if !backends.is_empty() {
                    backends.remove(rng.index(backends.len()));
                }
            }
            6 | 7 => {
                let (rng, backends) = (&mut self.rng, &mut self.config.services[service].backends);
                for backend in backends {
                    backend.weight = pick(rng, &[0, 1, 1, 2, 4]);
                }
            }
            8 if self.rng.permille(300) => {
                let mut new = self.config.services[service].clone();
                match self.rng.permille(500) {
                    true => new.ports = pick(&mut self.rng, &PORTS),
                    false => new.address = prefix(pick(&mut self.rng, &ADDRESSES)),
                }
                if !self.is_taken(&new) {
                    self.config.services[service] = new;
                }
            }
            8 => {
                let its = &mut self.config.services[service];
                its.scheduler = scheduler(&mut self.rng, self.style);
                its.persistence_s = persistence_s(&mut self.rng, self.style);
                its.all_down = pick(&mut self.rng, &[AllDown::Forward, AllDown::Drop]);
            }
            _ => {
                self.config.balancer.timeouts = timeouts(&mut self.rng);
                self.config.balancer.icmp_echo = icmp_echo(&mut self.rng);
            }
        }
    }

    /// `ctl weight` and `ctl drain`.
    fn set_weight(&mut self) {
        let Some(name) = self.any_backend() else { return };
        let weight = pick(&mut self.rng, &[0, 0, 1, 3]);
        self.standing.weights.insert(name, weight);
    }

    /// `ctl remove`, with `--flush` or without.
    fn remove_backend(&mut self) {
        let Some(name) = self.any_backend() else { return };
        let is_flushed = self.style != Style::Tiny && self.rng.permille(600);
        self.standing.removed.entry(name).or_insert(is_flushed);
    }

    fn change_health(&mut self) {
        for _ in 0..=self.rng.index(3) {
            let Some(name) = self.any_backend() else { return };
            if !self.standing.down.remove(&name) {
                self.standing.down.insert(name);
            }
        }
    }

    fn any_backend(&mut self) -> Option<(u32, IpAddr)> {
        let service = &self.config.services[self.rng.index(self.config.services.len())];
        if service.backends.is_empty() {
            return None;
        }
        let backend = service.backends[self.rng.index(service.backends.len())];
        Some((number(service), backend.address))
    }
}

fn balancer(rng: &mut Rng, style: Style) -> Balancer {
    // Prefixes with few host bits, with more than 32, and with all of them.
    let source_v4 = pick(rng, &["192.0.2.1", "192.0.2.64/26", "10.64.0.0/10"]);
    let source_v6 =
        pick(rng, &["2001:db8::1", "2001:db8:1::/64", "2001:db8:2::/80", "2001:db8:3::/48"]);
    let mut decapsulate: Vec<IpAddr> =
        vec![OWN_V4.parse().expect("one"), OWN_V6.parse().expect("one")];
    if rng.permille(200) {
        // An own address that is also a service's.
        decapsulate.push("203.0.113.9".parse().expect("one"));
    }
    let connections_max = match style {
        Style::Tiny => 3 + rng.index(10),
        _ => 8192,
    };
    let is_slow = style == Style::Ample && rng.permille(250);
    Balancer {
        source_v4: prefix(source_v4),
        source_v6: Some(prefix(source_v6)),
        hash_key: rng.permille(400).then(|| {
            let key = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
            key.parse().expect("32 digits")
        }),
        mtu: 1320 + rng.index(181) as u16,
        decapsulate,
        tunnel_peers: vec![prefix("10.9.9.0/24"), prefix("2001:db8:9::/48")],
        connections_max,
        icmp_echo: icmp_echo(rng),
        clamp_mss: rng.permille(600),
        maglev_slots: pick(rng, &[101, 251, 1009, 1009]),
        new_connections_per_second_max: if is_slow { 3 + rng.index(20) as u32 } else { 5_000_000 },
        timeouts: timeouts(rng),
        probe_sources: Vec::new(),
    }
}

fn icmp_echo(rng: &mut Rng) -> IcmpEcho {
    pick(rng, &[IcmpEcho::Reply, IcmpEcho::Reply, IcmpEcho::Forward, IcmpEcho::Drop])
}

fn timeouts(rng: &mut Rng) -> Timeouts {
    Timeouts {
        tcp_opening_s: 1 + rng.index(3) as u32,
        // Sometimes longer than the time after which a SYN begins another connection.
        tcp_established_s: pick(rng, &[3, 4, 5, 6, 7, 8, 90]),
        tcp_closing_s: 1 + rng.index(2) as u32,
        udp_s: 2 + rng.index(4) as u32,
        other_s: 2 + rng.index(4) as u32,
    }
}

fn scheduler(rng: &mut Rng, style: Style) -> Scheduler {
    use Scheduler::{LeastConnections, Maglev, RoundRobin, Source};
    match style {
        Style::Ample => pick(rng, &[Maglev, RoundRobin, Source]),
        Style::LeastConnections => {
            pick(rng, &[LeastConnections, LeastConnections, Maglev, RoundRobin])
        }
        Style::Tiny => pick(rng, &[Maglev, Source]),
    }
}

fn persistence_s(rng: &mut Rng, style: Style) -> u32 {
    if style == Style::Tiny { 0 } else { pick(rng, &[0, 1, 3, 6]) }
}

/// A probe like no other service's, so that backends fail for only one service.
pub fn health(service: u32) -> Health {
    Health {
        probe: Probe::Tcp,
        port: 1 + service as u16,
        interval_ms: 2000,
        timeout_ms: 1000,
        rise: 2,
        fall: 3,
        via: Via::Direct,
    }
}
