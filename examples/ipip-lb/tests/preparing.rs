//! Control prepares a change with a peer: the connections that the peer must know before the change
//! is in force, and the end of a change that can't be prepared.

use hotloop::engine::{Assembly, Engine, outlets, sources};
use hotloop::packet::build::tcp;
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop::stage::{Core, Instant};
use hotloop::testing::MemoryPort;
use hotloop_balancer::balance::{Egress, Egresses, Route};
use hotloop_balancer::exception_mover::ExceptionMover;
use hotloop_balancer::exceptions::Change;
use hotloop_cluster::settings::{Cluster, ClusterPeer, Security};
use hotloop_cluster::store::layout::Stored;
use hotloop_cluster::sync::Sync;
use hotloop_ops::Steer;
use hotloop_tests::{free_address, wait_until};
use ipip_lb::config::Config;
use ipip_lb::control::{Control, JOURNAL_MAX, Node, Proposal};
use ipip_lb::network_function::NetworkFunction;
use ipip_lb::source::ConfigSource;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, thread};

/// Tests send signals to this process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const DRAINED: &str = "10.0.0.3";

fn text(listen: SocketAddr, peer: SocketAddr, weight: u32) -> String {
    format!(
        "[balancer]\nsource_v4 = \"192.0.2.1\"\nmtu = 1500\ndecapsulate = []\nconnections_max = 1024\n\
         [[port]]\nname = \"up\"\ndevice = \"net_null0\"\nnext_hop_mac = \"02:00:00:00:00:01\"\n\
         [cluster]\nnode = \"a\"\nlisten = \"{listen}\"\ntrusted_network = true\nprepare_ms_max = 400\n\
         peers = [{{ name = \"b\", address = \"{peer}\" }}]\n\
         [[service]]\nname = \"web\"\naddress = \"203.0.113.10\"\nprotocol = \"tcp\"\nports = \"80\"\n\
         backend = [{{ address = \"10.0.0.1\" }}, {{ address = \"10.0.0.2\" }},\n\
         {{ address = \"{DRAINED}\", weight = {weight} }}]\n"
    )
}

/// The node called "a".
struct Balancer<'a> {
    control: Control,
    assembly: Assembly<'a>,
    port: MemoryPort,
    now_ns: u64,
}

impl Balancer<'_> {
    fn step(&mut self) {
        self.now_ns += 10_000;
        self.assembly.step(0, Instant::from_ns(self.now_ns));
    }

    /// The control thread's and the worker's work of a few milliseconds.
    fn turn(&mut self) {
        self.control.advance();
        (0..200).for_each(|_| self.step());
    }

    /// Takes enough turns for everything that may happen.
    fn live(&mut self) {
        for _ in 0..40 {
            self.turn();
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// The weight of the drained backend in the table in use.
    fn weight(&self) -> u32 {
        let summary = self.control.summary();
        let mut targets = summary.services.targets().iter();
        targets.find(|it| it.address().to_string() == DRAINED).unwrap().weight
    }

    fn config(&self, folder: &Path) -> Arc<Config> {
        let mut config = Config::load(&folder.join("next.toml")).unwrap();
        config.engine.workers = 1;
        Arc::new(config)
    }
}

/// Its peer, called "b": the received changes and those that it has entered.
struct Peer {
    sync: Sync,
    imports: Vec<Change>,
}

impl Peer {
    fn enter(&mut self) {
        self.sync.take_imports(&mut self.imports, 10_000);
    }

    fn said(&mut self) -> (usize, usize) {
        self.enter();
        let claims = self.imports.iter().filter(|it| matches!(it, Change::Claim(_))).count();
        (claims, self.imports.len() - claims)
    }
}

fn start_peer(addresses: [SocketAddr; 2], config: &Config) -> Peer {
    let [address, listen] = addresses;
    let cluster = Cluster {
        node: "b".into(),
        listen,
        peers: vec![ClusterPeer { name: "a".into(), address }],
        security: Security::TrustedNetwork,
        ready_timeout_s: 30,
        prepare_ms_max: 400,
    };
    let sync = Sync::start(&cluster, &config.balancer).unwrap();
    Peer { sync, imports: Vec::new() }
}

/// Runs `script` with a balancer that has 60 connections, in a folder with its file `lb.toml` and
/// another file, `next.toml`, which drains one of three backends. The second argument starts its
/// peer.
fn run(script: impl Fn(&mut Balancer<'_>, &dyn Fn() -> Peer, &Path)) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let addresses = [free_address(), free_address()];
    let path = folder.path().join("lb.toml");
    fs::write(&path, text(addresses[0], addresses[1], 1)).unwrap();
    fs::write(folder.path().join("next.toml"), text(addresses[0], addresses[1], 0)).unwrap();
    let mut config = Config::load(&path).unwrap();
    config.engine.workers = 1;
    let mac = MacAddress::new([2, 0, 0, 0, 0, 1]);
    let egress = Egress { route: Route(0), source: mac, destination: mac };
    let egresses = Egresses { clients: egress, backends: egress };
    let (function, handles) = NetworkFunction::new(&config, egresses).unwrap();
    let (function, asker) = function.sharing(JOURNAL_MAX);
    let cluster = config.cluster.clone().unwrap();
    let node = Node::start(&cluster, &config.balancer, ExceptionMover::new(asker, 1)).unwrap();
    let source = ConfigSource { workers: Some(1), ..ConfigSource::file(path) };
    let control =
        Control::start(source, config.clone(), handles).unwrap().with_cluster(None, Some(node));
    let port = MemoryPort::new("up");
    let graph = function.graph(
        |core: &Core| Ok(sources([port.rx_queue(core)?])),
        |core: &Core| Ok(outlets([(Route(0), port.tx_queue(core)?)])),
    );
    let plan = Engine::plan(graph, config.engine.deployment()).unwrap();
    let assembly = plan.assemble().unwrap();
    let mut balancer = Balancer { control, assembly, port: port.clone(), now_ns: 1_000_000_000 };
    for client in 1..=60 {
        for flags in [SYN, ACK] {
            let packet = tcp()
                .from(format!("198.51.100.{client}:4000"))
                .to("203.0.113.10:80")
                .tcp_flags(flags);
            balancer.port.feed(0, [packet.build()]);
            balancer.step();
        }
    }
    script(&mut balancer, &|| start_peer(addresses, &config), folder.path());
    drop(balancer.port.take_all_sent());
    assert!(balancer.assembly.finish(Instant::from_ns(balancer.now_ns)).is_whole());
}

/// Waits until the condition holds, while the balancer takes turns and its peer does this.
fn wait(
    balancer: &mut Balancer<'_>,
    what: &str,
    mut of_peer: impl FnMut(),
    mut is_so: impl FnMut(&Balancer<'_>) -> bool,
) {
    wait_until(what, || {
        for _ in 0..10 {
            balancer.turn();
            of_peer();
            thread::sleep(Duration::from_millis(1));
        }
        is_so(balancer)
    });
}

fn in_sync(balancer: &mut Balancer<'_>, peer: &mut Peer) {
    let Peer { sync, imports } = peer;
    let of_peer = || {
        sync.take_imports(imports, 10_000);
        if let Some(walk) = sync.snapshot_wanted() {
            sync.give_page(walk, &[], &[], true);
        }
    };
    wait(balancer, "both are in sync", of_peer, |_| {
        let status = &sync.status()[0];
        status.has_its_snapshot && status.is_caught_up
    });
    // The acknowledgement of the snapshot is still on its way.
    balancer.live();
}

/// A store's configuration.
fn stored() -> Arc<Stored> {
    Arc::new(Stored { name: "etcd://a:1".into(), revision: 1, text: String::new() })
}

fn is_prepared(balancer: &Balancer<'_>) -> bool {
    *balancer.control.proposal() == Proposal::Prepared
}

#[test]
fn what_all_nodes_prepare_is_in_force_once_it_is_adopted_and_the_peer_knows_the_exceptions() {
    run(|balancer, start_peer, folder| {
        let mut peer = start_peer();
        in_sync(balancer, &mut peer);
        assert_eq!(peer.said(), (0, 0));
        let next = balancer.config(folder);
        balancer.control.prepare(next, Some(stored()));
        balancer.live();
        assert_eq!(*balancer.control.proposal(), Proposal::Waiting, "the peer has entered nothing");
        wait(balancer, "it is prepared", || peer.enter(), is_prepared);
        let (claims, ends) = peer.said();
        assert!((10..30).contains(&claims) && ends == 0, "{claims} claims, {ends} ends");
        assert_eq!(balancer.weight(), 1);
        assert!(balancer.control.adopt(&stored()) && !balancer.control.adopt(&stored()));
        wait(balancer, "it is in force", || peer.enter(), |it| it.weight() == 0);
        balancer.live();
        assert_eq!(peer.said(), (claims, 0), "of what was prepared nothing is new");
    });
}

#[test]
fn what_is_discarded_ends_at_the_peer() {
    run(|balancer, start_peer, folder| {
        let mut peer = start_peer();
        in_sync(balancer, &mut peer);
        let next = balancer.config(folder);
        balancer.control.prepare(next, Some(stored()));
        wait(balancer, "it is prepared", || peer.enter(), is_prepared);
        let (claims, _) = peer.said();
        balancer.control.discard();
        assert_eq!(*balancer.control.proposal(), Proposal::None);
        wait(balancer, "they end", || {}, |_| peer.said() == (claims, claims));
        assert_eq!(balancer.weight(), 1);
        assert!(!balancer.control.adopt(&stored()));
    });
}

#[test]
fn what_can_not_be_prepared_is_refused_with_a_reason() {
    run(|balancer, start_peer, folder| {
        let refused = |balancer: &mut Balancer<'_>, config: Arc<Config>| {
            balancer.control.prepare(config, Some(stored()));
            wait(
                balancer,
                "it is refused",
                || {},
                |it| *it.control.proposal() != Proposal::Waiting,
            );
            balancer.control.proposal().clone()
        };
        let next = balancer.config(folder);
        let away = refused(balancer, Arc::clone(&next));
        assert_eq!(away, Proposal::Refused("peer b is away".to_owned()));
        let mut other = (*next).clone();
        other.balancer.connections_max += 1;
        let Proposal::Refused(why) = refused(balancer, Arc::new(other)) else { panic!() };
        assert!(why.contains("balancer.connections_max can't change"), "{why}");
        // A peer that enters nothing.
        let mut peer = start_peer();
        in_sync(balancer, &mut peer);
        let silent = refused(balancer, next);
        let why = "peer b has not entered what this node knows".to_owned();
        assert_eq!(silent, Proposal::Refused(why));
        assert_eq!(balancer.weight(), 1);
    });
}

#[test]
fn a_reload_waits_for_its_peer_and_goes_on_without_it_after_a_time() {
    for enters in [true, false] {
        run(|balancer, start_peer, folder| {
            let mut peer = start_peer();
            in_sync(balancer, &mut peer);
            fs::copy(folder.join("next.toml"), folder.join("lb.toml")).unwrap();
            balancer.control.hangup();
            balancer.live();
            assert_eq!(balancer.weight(), 1, "the peer has entered nothing");
            if enters {
                wait(balancer, "it is in force", || peer.enter(), |it| it.weight() == 0);
                assert!(peer.said().0 > 10);
                return;
            }
            wait(balancer, "it is in force", || {}, |it| it.weight() == 0);
        });
    }
}

/// A reload does not wait for absent peers.
#[test]
fn a_reload_does_not_wait_for_a_peer_that_is_away() {
    run(|balancer, _, folder| {
        fs::copy(folder.join("next.toml"), folder.join("lb.toml")).unwrap();
        balancer.control.hangup();
        wait(balancer, "it is in force", || {}, |it| it.weight() == 0);
    });
}
