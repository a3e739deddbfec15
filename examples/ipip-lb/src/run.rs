//! `ipip-lb run`: the balancer on devices.

use crate::announce;
use crate::check::{PUBLIC_HASHES, Understood};
use crate::cli::Run;
use crate::config::{self, Config, ConfigError};
use crate::control::{ConfigStore, Control, Handover, JOURNAL_MAX, Keeper, Node, operator_file};
use crate::ctl;
use crate::exception::{self, KernelInterface};
use crate::failure::{BadInput, Failure, unless_ended};
use crate::hugepages::{self, CheckedQueue};
use crate::network_function::NetworkFunction;
use crate::next_hops::{self, KernelHopWatch};
use crate::outcome::Outcome;
use crate::port_hops;
use crate::replace::predecessor::take_over;
use crate::replace::{self, HandedOver, Inherited};
use crate::vip_guard;
use hotloop::dpdk::{Eal, Mbuf, Mempool, MempoolConfig, Port};
use hotloop::engine::{Engine, Graph, outlets, sources};
use hotloop::packet::PacketBuf;
use hotloop::packet::ethernet::Station;
use hotloop::stage::neighbours::NextHop;
use hotloop::stage::{Core, Error};
use hotloop_balancer::balance::{Create, Egress, Egresses, Route};
use hotloop_balancer::classify::ReceivingPorts;
use hotloop_balancer::exception_mover::ExceptionMover;
use hotloop_balancer::spec::Side;
use hotloop_cluster::replace::{Gate, Gated};
use hotloop_cluster::store::Patience;
use hotloop_cluster::store::layout::Stored;
use hotloop_kernel::{PortOrKernel, VipAnnouncer};
use hotloop_ops::{CONTROL, Operation, Socket, Watching};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

/// Balances until SIGINT or SIGTERM, the end of the duration, or the end of every device that has
/// one. An earlier signal takes effect while the program waits for a store or another program, and
/// once it runs.
///
/// # Errors
/// If the arguments, the configuration or a device are invalid; the outcome reports a run that
/// fails.
pub fn run(args: &Run) -> Result<Outcome, Failure> {
    let (mut outcome, left) = match run_to_end(args) {
        Err(Failure::Ended) => return Ok(Outcome::of_no_run()),
        ended => ended?,
    };
    // Nothing of this program is in the way of another one any more.
    if let Some(left) = left {
        hotloop_ops::give_back_cpus();
        if let Err(why) = left.hand_over() {
            outcome.add_failure(format!(
                "replace: no program balances now; the one that was to take over: {why}"
            ));
        }
    }
    Ok(outcome)
}

/// Like [`run`], and closes everything. If another program takes over, returns the state for it.
fn run_to_end(args: &Run) -> Result<(Outcome, Option<HandedOver>), Failure> {
    let (config, stored) = unless_ended(args.common.source.start(Patience::Endless))?;
    let notes = Understood(&config).notes();
    hugepages::check_arguments(&args.eal, &config)?;
    let stall_max = stall_max(args, &config);
    let guard = config.announce.as_ref().and_then(|_| vip_guard::start(stall_max, args.log));
    let eal = open_eal(&args.eal)?;
    let mut inherited = args.replace.then(|| take_over(&args.control, &config)).transpose()?;
    let gate = Gate::new(inherited.is_none());
    let kept = || operator_file::load(&config, SystemTime::now());
    let saved = inherited.as_ref().map_or_else(kept, |known| Ok(known.state.saved.clone()))?;
    let ports = open_ports(eal, &config, args)?;
    let standing = saved.overrides(&config).standing(&config);
    let (function, handles) = NetworkFunction::standing(&config, egresses(&ports), &standing)
        .map_err(|error| BadInput::new(error.to_string()))?;
    let all: Vec<_> = ports.iter().map(|(_, port)| port).collect();
    let interfaces = exception::open(eal, &config, &all, files_of(&mut inherited))?;
    let mut receiving = receiving(&config, &ports)?;
    interfaces.iter().for_each(|interface| interface.set_ways(&mut receiving));
    let routed = next_hops::routed_ports(&config, &interfaces);
    let followed = (!routed.is_empty()).then(|| next_hops::follow(&routed));
    let (by_kernel, followed) = followed.transpose()?.unzip();
    let watch = followed.map(|followed| KernelHopWatch::new(followed, &config));
    let has_vlans_or_kernel_routes = receiving.has_vlans() || by_kernel.is_some();
    let function = function.receiving(receiving).by_kernel(by_kernel);
    let next_hops = next_hops_of(&config, &ports)?;
    let hops = port_hops::watch(function.neighbours(), &config, &next_hops);
    let (function, node, handover) = clustered(function, &config, gate.clone())?;
    let bound = args.control.bind("ipip-lb").map_err(|error| BadInput::new(error.to_string()))?;
    let mut socket = bound.map(|socket| socket.noting(ctl::note).querying(ctl::is_query));
    let files = files_of(&mut inherited);
    let (vips, announcer) = announce::open(eal, &config, guard, files)?.unzip();
    let watching = watching(args, stall_max, announcer.as_ref());
    let control = Control::start(args.common.source.clone(), config.clone(), handles)?;
    let control = control.with_port_names(port_names(&ports, &config));
    let control = control.with_announcer(announcer).with_next_hops(watch, hops);
    let control = control.with_cluster(store(args, &config, stored)?, node);
    let control = control.with_keeper(Keeper::start(&config)?).with_overrides(&saved);
    let mut control = control.with_handover(handover, inherited.as_mut());
    let receive = |core: &Core| {
        let queues = rx_queues(core, &ports, &config)?.into_iter().map(PortOrKernel::Port);
        let all = interfaces.iter().map(KernelInterface::port);
        let all = all.chain(vips.as_ref());
        let all = all.map(|interface| Ok(PortOrKernel::Kernel(interface.source(core)?)));
        let source = sources(queues.chain(all.collect::<Result<Vec<_>, Error>>()?));
        Ok(Gated { source, gate: gate.clone() })
    };
    let send = |core: &Core| {
        let queue = |port: &Port| Ok::<_, Error>(PortOrKernel::Port(port.tx_queue(core)?));
        let queues = ports.iter().map(|(egress, port)| Ok((egress.route, queue(port)?)));
        let sink =
            |tap: &KernelInterface| Ok::<_, Error>(PortOrKernel::Kernel(tap.port().sink(core)?));
        let punted = interfaces.iter().map(|tap| Ok((tap.route(), sink(tap)?)));
        Ok(outlets(queues.chain(punted).collect::<Result<Vec<_>, Error>>()?))
    };
    let pool = probe_pool(eal, &config)?;
    let create = |_: &Core| pool.clone().map(|pool| creating(pool));
    let running = Running { args, config: &config, notes: &notes, watching };
    let is_resolving = has_vlans_or_kernel_routes || next_hops.iter().any(Option::is_some);
    let outcome = if pool.is_some() || is_resolving {
        let graph = function.probing_graph(create, &next_hops, receive, send);
        running.run(graph, &mut control, socket.as_mut())
    } else {
        running.run(function.graph(receive, send), &mut control, socket.as_mut())
    }?;
    let left = control.let_go();
    let left = left.map(|left| replace::with_interfaces(left, interfaces, vips));
    Ok((outcome, left.transpose()?))
}

/// DPDK's environment, by these arguments if there are any.
fn open_eal(arguments: &[String]) -> Result<Eal, BadInput> {
    let eal = if arguments.is_empty() { Eal::embedded() } else { Eal::with_args(arguments) };
    eal.map_err(|error| BadInput::new(format!("arguments after --: {error}")))
}

/// The files of the interfaces that a predecessor has left.
fn files_of(inherited: &mut Option<Inherited>) -> Option<&mut HashMap<String, OwnedFd>> {
    inherited.as_mut().map(|inherited| &mut inherited.interfaces)
}

/// The balancer as a node of its store, if it has one; `stored` is in force.
fn store(
    args: &Run,
    config: &Config,
    stored: Option<Stored>,
) -> Result<Option<ConfigStore>, Failure> {
    let start = |(store, stored)| ConfigStore::start(args.common.source.clone(), store, stored);
    let followed = config.store.as_ref().zip(stored).map(start).transpose();
    followed.map_err(|error| Failure::Run(format!("threads: {error}")))
}

/// The balancer as a node among its peers, if it has any, and ready to hand over to another
/// program.
fn clustered(
    function: NetworkFunction,
    config: &Config,
    gate: Gate,
) -> Result<(NetworkFunction, Option<Node>, Handover), Failure> {
    let worker_count = config.engine.deployment().cores_in(1);
    let Some(cluster) = &config.cluster else {
        // Workers keep journals only while another program takes over.
        let (function, asker) = function.sharing(0);
        let alone = ExceptionMover::new(asker, worker_count);
        return Ok((function, None, Handover::new(gate, Some(alone))));
    };
    let (function, asker) = function.sharing(JOURNAL_MAX);
    let exceptions = ExceptionMover::new(asker, worker_count);
    let node = Node::start(cluster, config, exceptions)?;
    Ok((function, Some(node), Handover::new(gate, None)))
}

/// The input of a run.
struct Running<'a> {
    args: &'a Run,
    config: &'a Config,
    notes: &'a [String],
    watching: Watching<'static>,
}

/// The time after which a thread counts as hanging; zero for never.
fn stall_max(args: &Run, config: &Config) -> Duration {
    let configured = Duration::from_millis(config.engine.worker_stall_ms_max.into());
    args.stall.given().unwrap_or(configured)
}

/// A worker that is stuck ends the process, which then prints the engine's last counts. VIPs are
/// withdrawn while any thread hangs.
fn watching(
    args: &Run,
    stall_max: Duration,
    announcer: Option<&VipAnnouncer>,
) -> Watching<'static> {
    let format = args.common.report;
    let watching = Watching::default()
        .stall_max(stall_max)
        .report(move |report| format!("{}\n", format.text_of(report)));
    match announcer {
        Some(announcer) => watching.on_stall(announce::on_stall(announcer)),
        None => watching,
    }
}

impl Running<'_> {
    fn run(
        self,
        graph: impl Graph,
        control: &mut Control,
        socket: Option<&mut Socket>,
    ) -> Result<Outcome, Failure> {
        let Self { args, config, notes, watching } = self;
        let plan = Engine::plan(graph, config.engine.deployment())
            .map_err(|error| BadInput::new(format!("--workers, --dispatchers: {error}")))?
            .idle(config.engine.idle);
        let plan = hotloop_ops::place(plan);
        let placement = plan.placement_now();
        let mut metrics = match args.metrics.bind() {
            Ok(metrics) => metrics,
            Err(hotloop_ops::Failure::Input(problem)) => return Err(BadInput::new(problem).into()),
            Err(failure) => return Err(Failure::Run(failure.to_string())),
        };
        let run = hotloop_ops::run(plan, CONTROL, watching, |engine| {
            let deployment = config.engine.deployment();
            tracing::info!("running: {deployment}; on {placement}; Ctrl-C ends it");
            if config.balancer.hash_key.is_none() {
                tracing::warn!("{PUBLIC_HASHES}");
            }
            for note in notes {
                tracing::warn!("{note}");
            }
            let metrics = metrics.as_mut();
            Operation { socket, metrics, duration: args.duration }.run(engine, control);
        });
        control.log_packets(hotloop::stage::Instant::from_ns(0), true);
        Ok(Outcome::new(run, &control.summary()))
    }
}

/// The neighbours of each port, if the configuration does not have their Ethernet addresses.
fn next_hops_of(config: &Config, ports: &[OpenPort]) -> Result<Vec<Option<NextHop>>, Failure> {
    let hop = |(configured, (_, port)): (&config::Port, &OpenPort)| {
        let id = port.id().map_err(|error| Failure::Run(error.to_string()))?;
        Ok(configured.hop(id, port.mac()))
    };
    config.ports.iter().zip(ports).map(hop).collect()
}

/// A port of the configuration, with its egress and the side that it reaches.
type OpenPort = (SidedEgress, Port);

/// How packets leave by a port, and the side that it reaches.
struct SidedEgress {
    side: Side,
    route: Route,
    egress: Egress,
}

fn open_ports(eal: Eal, config: &Config, args: &Run) -> Result<Vec<OpenPort>, BadInput> {
    let open = |(index, port): (u16, &crate::config::Port)| {
        let devices = args.devices.with(port.settings);
        let opened = devices.open(eal, &port.device).map_err(|error| ConfigError {
            file: args.common.source.config.display().to_string(),
            line: port.device_line,
            key: format!("port.{}.device", port.name),
            problem: error.to_string(),
        })?;
        let route = Route(index);
        let destination = port.next_hop.mac();
        let is_by_kernel = port.next_hop == config::NextHop::Kernel;
        let way = if is_by_kernel { Route::BY_KERNEL } else { route };
        let egress = Egress { route: way, source: opened.mac(), destination };
        Ok((SidedEgress { side: port.side, route, egress }, opened))
    };
    (0..).zip(&config.ports).map(open).collect()
}

/// Each port's device, and its name in the configuration.
fn port_names(ports: &[OpenPort], config: &Config) -> Vec<[String; 2]> {
    let names = ports.iter().zip(&config.ports);
    names.map(|((_, port), named)| [port.name().to_owned(), named.name.clone()]).collect()
}

/// An RX queue of each port, for a core.
fn rx_queues<'a>(
    core: &Core,
    ports: &'a [OpenPort],
    config: &'a Config,
) -> Result<Vec<CheckedQueue<'a>>, Error> {
    let require_hugepages = config.engine.require_hugepages;
    let queues = ports.iter().zip(&config.ports).map(|((_, port), of)| {
        let (queue, name) = (port.rx_queue(core)?, of.name.as_str());
        Ok(CheckedQueue { queue, port, name, require_hugepages })
    });
    queues.collect()
}

/// The properties of the receiving ports.
fn receiving(config: &Config, ports: &[OpenPort]) -> Result<ReceivingPorts, Failure> {
    let mut receiving = ReceivingPorts::default();
    for (configured, (_, port)) in config.ports.iter().zip(ports) {
        let takes_all = configured.accept_any_mac || !port.has_own_mac();
        let station = if takes_all { Station::ANY } else { Station::with(port.mac()) };
        let id = port.id().map_err(|error| Failure::Run(error.to_string()))?;
        receiving.set(id, station, configured.side);
        port.cut_bytes().into_iter().for_each(|bytes| receiving.set_cut(id, bytes));
        configured.vlan.into_iter().for_each(|vlan| receiving.set_vlan(id, vlan));
    }
    Ok(receiving)
}

/// Number of mbufs of the probes' pool that each core keeps to itself.
const PROBE_CACHE_COUNT: u32 = 32;

/// The pool for packets of probes through tunnels, if there may be any: the mbufs that TX queues
/// can hold back, plus some in use.
fn probe_pool(eal: Eal, config: &Config) -> Result<Option<Mempool>, Failure> {
    if config.balancer.probe_sources.is_empty() {
        return Ok(None);
    }
    let descriptors = config.ports.iter().filter(|port| port.side.has_backends());
    let descriptors =
        descriptors.map(|port| u32::from(port.settings.tx_descriptors.unwrap_or(1024)));
    let each = descriptors.max().unwrap_or(0) + 2 * PROBE_CACHE_COUNT;
    let pool = MempoolConfig {
        mbuf_count: each * config.engine.workers as u32 + 63,
        cache_count: PROBE_CACHE_COUNT,
        // A device on a bus may have to read them.
        contiguous: true,
        ..MempoolConfig::default()
    };
    let pool = Mempool::new(eal, &pool);
    pool.map(Some).map_err(|error| BadInput::new(format!("health.probe_source: {error}")).into())
}

/// Makes packets from a pool.
fn creating(pool: Mempool) -> Create<Mbuf> {
    Box::new(move |frame| {
        let mut packet = pool.alloc()?;
        packet.append(frame.len()).ok()?.copy_from_slice(frame);
        Some(packet)
    })
}

/// The first port towards each side or, if its next hops come from the kernel, the port that the
/// kernel's routes select.
fn egresses(ports: &[OpenPort]) -> Egresses {
    let first = |reaches: fn(Side) -> bool| {
        let port = ports.iter().find(|(port, _)| reaches(port.side));
        port.expect("a configuration has a port towards each side").0.egress
    };
    Egresses { clients: first(Side::has_clients), backends: first(Side::has_backends) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use hotloop::stage::{Limits, Source};

    const CONFIG: &str = r#"
        [engine]
        require_hugepages = false
        [balancer]
        source_v4 = "192.0.2.1"
        mtu = 1500
        decapsulate = []
        [[port]]
        name = "uplink"
        device = "net_null_run"
        next_hop_mac = "02:00:00:00:00:01"
        [[service]]
        name = "web"
        address = "203.0.113.10"
        protocol = "tcp"
        ports = "80"
        backend = [{ address = "10.0.0.1" }]
    "#;

    #[test]
    fn a_port_without_hugepages_starts_where_the_configuration_does_not_require_them() {
        let cli = Cli::parse_from(["ipip-lb", "run", "--config", "lb.toml"]);
        let Command::Run(args) = cli.command else { panic!("{cli:?}") };
        let mut config = Config::parse("lb.toml", CONFIG).unwrap();
        let ports = open_ports(Eal::embedded_or_current().unwrap(), &config, &args).unwrap();
        let core = Core::new(0, 1);
        let start = |config: &Config| {
            let mut queues = sources(rx_queues(&core, &ports, config).unwrap());
            queues.start(&Limits { in_flight_max: 0, thread_count: 1, is_pipeline: false })
        };
        assert!(start(&config).is_ok());
        config.engine.require_hugepages = true;
        let refused = start(&config).unwrap_err().to_string();
        assert!(refused.contains("the mempool of port uplink got"), "{refused}");
    }
}
