//! The whole network function over in-memory ports, in all deployments: for tests that read the
//! packets of each port.

pub mod running;
pub mod sent;

pub use crate::config::{preamble, service};
pub use running::{BACKENDS, CLIENTS, Running};
pub use sent::Sent;

use hotloop::engine::{Deployment, Engine, Report, outlets, sources};
use hotloop::packet::PortId;
use hotloop::packet::ethernet::MacAddress;
use hotloop::stage::neighbours::NextHop;
use hotloop::stage::{Core, Error};
use hotloop::testing::{Frame, MemoryPort, PacketPool, PortConfig};
use hotloop_balancer::balance::{Create, Egress, Egresses, Route};
use hotloop_balancer::classify::ReceivingPorts;
use hotloop_balancer::exception_mover::ExceptionMover;
use ipip_lb::config::Config;
use ipip_lb::network_function::NetworkFunction;
use std::fmt::Debug;

pub const CLIENTS_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
pub const BACKENDS_MAC: [u8; 6] = [2, 0, 0, 0, 2, 1];
/// The balancer's own address, at both ports.
pub const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 9, 9];

/// Size of each worker's journal of exceptions.
const JOURNAL_MAX: usize = 4096;

/// Runs `script` in both deployments, each with `worker_count` workers, and checks that every
/// ledger is whole. The results must be the same in both, and are returned.
pub fn in_both<T: Debug + PartialEq>(
    config: &str,
    worker_count: usize,
    script: impl Fn(&mut Running<'_>) -> T,
) -> (T, [Report; 2]) {
    let rtc = Deployment::run_to_completion(worker_count);
    let (first, first_report) = run(config, rtc, &script);
    let pipeline = Deployment::pipeline([1, worker_count]);
    let (second, second_report) = run(config, pipeline, &script);
    assert_eq!(first, second);
    assert_eq!(first_report.dropped, second_report.dropped);
    assert_eq!(first_report.created, second_report.created);
    (first, [first_report, second_report])
}

/// Runs `script` in both deployments with one and with two workers, and in the pipeline with one
/// and with two dispatchers. The results must be the same in all of them: they must not depend on
/// the numbers of workers, nor on the order of packets of several flows.
pub fn in_all<T: Debug + PartialEq>(
    config: &str,
    script: impl Fn(&mut Running<'_>) -> T,
) -> (T, Report) {
    let (first, report) = run(config, Deployment::run_to_completion(1), &script);
    for deployment in [
        Deployment::run_to_completion(2),
        Deployment::pipeline([1, 1]),
        Deployment::pipeline([1, 2]),
        Deployment::pipeline([2, 1]),
        Deployment::pipeline([2, 2]),
    ] {
        let (other, other_report) = run(config, deployment, &script);
        assert_eq!(first, other, "{deployment}");
        assert_eq!(report.dropped, other_report.dropped, "{deployment}");
        assert_eq!(report.created, other_report.created, "{deployment}");
    }
    (first, report)
}

/// Runs `script` in one deployment.
pub fn run<T>(
    config: &str,
    deployment: Deployment,
    script: impl Fn(&mut Running<'_>) -> T,
) -> (T, Report) {
    run_with_buffers(config, deployment, &PacketPool::unbounded(), script)
}

/// Runs `script` in one deployment, with ports that take their buffers from `pool`.
pub fn run_with_buffers<T>(
    config: &str,
    deployment: Deployment,
    pool: &PacketPool,
    script: impl Fn(&mut Running<'_>) -> T,
) -> (T, Report) {
    run_receiving(config, deployment, pool, ReceivingPorts::default(), script)
}

/// Runs `script` in one deployment, with ports numbered [`CLIENTS`] and [`BACKENDS`], which have
/// the properties of `receiving`.
pub fn run_receiving<T>(
    config: &str,
    deployment: Deployment,
    pool: &PacketPool,
    receiving: ReceivingPorts,
    script: impl Fn(&mut Running<'_>) -> T,
) -> (T, Report) {
    let mut result = None;
    let mut script = |running: &mut Running<'_>| result = Some(script(running));
    let report = run_script(config, deployment, pool, receiving, &mut script);
    (result.expect("the script ran"), report)
}

/// Not generic: the whole network function is compiled once, and not for every script.
fn run_script(
    config: &str,
    deployment: Deployment,
    pool: &PacketPool,
    receiving: ReceivingPorts,
    script: &mut dyn FnMut(&mut Running<'_>),
) -> Report {
    let mut config = Config::parse("lb.toml", config).unwrap_or_else(|error| panic!("{error}"));
    config.engine.workers = deployment.cores_in(1);
    let (function, handles) = NetworkFunction::new(&config, egresses()).unwrap();
    let mut receiving = receiving;
    for (id, port) in (0..).zip(&config.ports) {
        port.vlan.into_iter().for_each(|vlan| receiving.set_vlan(PortId::new(id), vlan));
    }
    let has_vlans = receiving.has_vlans();
    let (function, asker) = function.receiving(receiving).sharing(JOURNAL_MAX);
    let exceptions = ExceptionMover::new(asker, deployment.cores_in(1));
    let ports = [("clients", CLIENTS), ("backends", BACKENDS)].map(|(name, number)| {
        // Sent packets return to the pool at once, so that few buffers suffice.
        let (id, pool) = (Some(PortId::new(number as u16)), pool.clone());
        let config = PortConfig { id, pool, tx_kept_count: 0, ..PortConfig::default() };
        MemoryPort::with_config(name, config)
    });
    let receive = |core: &Core| {
        let queues = ports.iter().map(|port| port.rx_queue(core));
        Ok(sources(queues.collect::<Result<Vec<_>, Error>>()?))
    };
    let send = |core: &Core| {
        let queues = (0..)
            .zip(&ports)
            .map(|(index, port)| Ok::<_, Error>((Route(index), port.tx_queue(core)?)));
        Ok(outlets(queues.collect::<Result<Vec<_>, Error>>()?))
    };
    let next_hops = next_hops(&config);
    let (resolving, plan);
    let has_probes = !config.balancer.probe_sources.is_empty();
    let is_resolving = next_hops.iter().any(Option::is_some);
    let assembly = if has_probes || has_vlans || is_resolving {
        let create = move |_: &Core| {
            let create: Create<_> = {
                let pool = pool.clone();
                Box::new(move |frame: &[u8]| pool.take(&Frame::from(frame.to_vec())))
            };
            has_probes.then_some(create)
        };
        let graph = function.probing_graph(create, &next_hops, receive, send);
        resolving = Engine::plan(graph, deployment).unwrap();
        resolving.assemble().unwrap()
    } else {
        plan = Engine::plan(function.graph(receive, send), deployment).unwrap();
        plan.assemble().unwrap()
    };
    let mut running =
        Running::new(assembly, ports.clone(), deployment, config, handles, exceptions);
    script(&mut running);
    let report = running.finish();
    assert!(report.is_whole(), "{report}");
    assert_eq!(report.received + report.created, report.sent + report.dropped_sum(), "{report}");
    assert_eq!(pool.out_count(), 0, "{report}");
    report
}

/// The neighbours for packets of each port.
fn next_hops(config: &Config) -> Vec<Option<NextHop>> {
    let ports = (0..).map(PortId::new).zip(&config.ports);
    ports.map(|(id, port)| port.hop(id, MacAddress::new(OWN_MAC))).collect()
}

/// How packets leave: for clients by the first port, for backends by the second.
pub fn egresses() -> Egresses {
    let egress = |route, destination| Egress {
        route: Route(route),
        source: MacAddress::new(OWN_MAC),
        destination: MacAddress::new(destination),
    };
    Egresses { clients: egress(0, CLIENTS_MAC), backends: egress(1, BACKENDS_MAC) }
}

/// Checks that exactly this many packets were dropped for these reasons, and none for others.
pub fn assert_dropped(report: &Report, expected: &[(&str, u64)]) {
    let expected = expected.iter().map(|(reason, count)| ((*reason).to_owned(), *count));
    let dropped = report.dropped.clone().into_iter().filter(|(_, count)| *count > 0);
    let (expected, dropped): (Vec<_>, Vec<_>) = (expected.collect(), dropped.collect());
    let sorted = |mut counts: Vec<(String, u64)>| {
        counts.sort();
        counts
    };
    assert_eq!(sorted(dropped), sorted(expected), "{report}");
}
