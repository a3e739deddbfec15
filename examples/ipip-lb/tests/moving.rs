//! Control and a peer: the reference table moves once the peer knows all connections that differ from
//! it; changes of the configuration wait for no peer.

use hotloop::engine::{Assembly, Engine, outlets, sources};
use hotloop::packet::build::tcp;
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop::stage::{Core, Instant};
use hotloop::testing::MemoryPort;
use hotloop_agreement::barrier::{Phase, Step};
use hotloop_balancer::balance::{Egress, Egresses, Route};
use hotloop_balancer::exception_mover::ExceptionMover;
use hotloop_balancer::exceptions::Change;
use hotloop_cluster::settings::{Cluster, ClusterPeer, Security};
use hotloop_cluster::store::layout::Stored;
use hotloop_cluster::sync::wire::NodeState;
use hotloop_cluster::sync::{Agreement, Sync, Turn};
use hotloop_ops::Steer;
use hotloop_tests::{free_address, wait_until};
use ipip_lb::config::Config;
use ipip_lb::control::{Control, JOURNAL_MAX, Node, Proposal};
use ipip_lb::network_function::NetworkFunction;
use ipip_lb::overrides::Overrides;
use ipip_lb::reference::to_text;
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
         [balancer.timeouts_s]\ntcp_established = 2\nudp = 2\nother = 2\n\
         [[port]]\nname = \"up\"\ndevice = \"net_null0\"\nnext_hop_mac = \"02:00:00:00:00:01\"\n\
         [cluster]\nnode = \"a\"\nlisten = \"{listen}\"\ntrusted_network = true\nprepare_ms_max = 400\nsettle_s = 1\n\
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
        self.now_ns += 1_000;
        self.assembly.step(0, Instant::from_ns(self.now_ns));
    }

    /// The control thread's and the worker's work of a few milliseconds.
    fn turn(&mut self) {
        self.control.advance();
        (0..200).for_each(|_| self.step());
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

/// Its peer, called "b": the received changes, and its part in the agreement.
struct Peer {
    sync: Sync,
    agreement: Agreement,
    imports: Vec<Change>,
    began: std::time::Instant,
    /// Whether it enters the node's changes.
    enters: bool,
}

impl Peer {
    fn start(addresses: [SocketAddr; 2], config: &Config) -> Self {
        let [address, listen] = addresses;
        let cluster = Cluster {
            node: "b".into(),
            listen,
            peers: vec![ClusterPeer { name: "a".into(), address }],
            security: Security::TrustedNetwork,
            ready_timeout_s: 30,
            prepare_ms_max: 400,
            settle_s: 1,
        };
        let sync = Sync::start(&cluster, &config.balancer).unwrap();
        let agreement = Agreement::new("b", sync.incarnation(), 0);
        let began = std::time::Instant::now();
        let mut peer = Self { sync, agreement, imports: Vec::new(), began, enters: true };
        peer.want(config);
        peer
    }

    fn want(&mut self, config: &Config) {
        self.agreement.want(to_text(&config.services, &Overrides::default()));
    }

    fn turn(&mut self) {
        if self.enters {
            self.sync.take_imports(&mut self.imports, 10_000);
        }
        if let Some(walk) = self.sync.snapshot_wanted() {
            self.sync.give_page(walk, &[], true);
        }
        let now_ms = self.began.elapsed().as_millis() as u64;
        let turn = Turn { now_ms, has_waited: true, is_marked: true, settle_ms: 1_000, lost_ms: 0 };
        let Self { sync, agreement, .. } = self;
        let (watermark, entered) = (|| sync.watermark(), |mark: &_| sync.entered(mark));
        if agreement.turn(&sync.status(), turn, watermark, entered).is_some() {
            sync.set_references(agreement.use_awaited().to_vec());
        }
        let standing = agreement.standing(now_ms);
        sync.say(NodeState { tables: 0, is_ready: true, clock: 0, standing });
    }

    /// Both nodes' phases.
    fn phases(&self) -> (Phase, Option<Phase>) {
        let theirs = self.sync.status()[0].said.map(|said| said.standing.member.phase);
        (self.agreement.standing(0).member.phase, theirs)
    }

    /// Whether both nodes have finished the move to this table.
    fn has_finished(&self, table: u32) -> bool {
        let idle = Phase { table, step: Step::Idle };
        self.phases() == (idle, Some(idle)) && !self.agreement.tables().is_empty()
    }

    /// Number of claims to connections on the drained backend, of other claims, and of ends.
    fn heard(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for change in &self.imports {
            counts[match change {
                Change::Claim(record) if record.backend.to_string() == DRAINED => 0,
                Change::Claim(_) => 1,
                Change::Inherit(_) => 2,
            }] += 1;
        }
        counts
    }
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
    let node = Node::start(&cluster, &config, ExceptionMover::new(asker, 1)).unwrap();
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
    script(&mut balancer, &|| Peer::start(addresses, &config), folder.path());
    drop(balancer.port.take_all_sent());
    assert!(balancer.assembly.finish(Instant::from_ns(balancer.now_ns)).is_whole());
}

/// Waits until the condition holds, while the balancer and its peer take turns.
fn wait(
    balancer: &mut Balancer<'_>,
    what: &str,
    mut peer: Option<&mut Peer>,
    mut is_so: impl FnMut(&Balancer<'_>, Option<&Peer>) -> bool,
) {
    wait_until(what, || {
        for _ in 0..10 {
            balancer.turn();
            peer.iter_mut().for_each(|peer| peer.turn());
            thread::sleep(Duration::from_millis(1));
        }
        is_so(balancer, peer.as_deref())
    });
}

/// A store's configuration.
fn stored() -> Arc<Stored> {
    Arc::new(Stored { name: "etcd://a:1".into(), revision: 1, text: String::new() })
}

fn has_answered(balancer: &Balancer<'_>) -> bool {
    *balancer.control.proposal() != Proposal::Waiting
}

#[test]
fn a_move_waits_for_the_peer_to_know_what_the_next_table_would_place_elsewhere() {
    run(|balancer, start_peer, folder| {
        let mut peer = start_peer();
        wait(balancer, "both share a table", Some(&mut peer), |_, peer| {
            peer.is_some_and(|peer| peer.has_finished(0))
        });
        assert_eq!(peer.heard(), [0; 3]);
        peer.enters = false;
        let next = balancer.config(folder);
        peer.want(&next);
        fs::copy(folder.join("next.toml"), folder.join("lb.toml")).unwrap();
        balancer.control.hangup();
        wait(balancer, "it is in force", Some(&mut peer), |it, _| it.weight() == 0);
        assert_eq!(peer.phases().1.map(|phase| phase.step), Some(Step::Idle));
        let is_ready = |phase: Phase| phase == Phase { table: 0, step: Step::Ready };
        wait(balancer, "both compare with both tables", Some(&mut peer), |_, peer| {
            let (own, theirs) = peer.unwrap().phases();
            (is_ready(own) || own.step == Step::Marked) && theirs.is_some_and(is_ready)
        });
        for _ in 0..50 {
            balancer.turn();
            peer.turn();
            thread::sleep(Duration::from_millis(2));
        }
        assert!(peer.phases().1.is_some_and(is_ready), "the peer has entered nothing");
        peer.enters = true;
        wait(balancer, "the table has moved", Some(&mut peer), |_, peer| {
            peer.is_some_and(|peer| peer.has_finished(1))
        });
        let [of_drained, others, ends] = peer.heard();
        assert!((10..30).contains(&of_drained) && others == 0 && ends == 0, "{:?}", peer.heard());
        assert!(!peer.agreement.tables()[0].text.contains(DRAINED));
    });
}

#[test]
fn a_reload_waits_for_no_peer() {
    for is_away in [true, false] {
        run(|balancer, start_peer, folder| {
            let mut peer = (!is_away).then(start_peer);
            peer.iter_mut().for_each(|peer| peer.enters = false);
            fs::copy(folder.join("next.toml"), folder.join("lb.toml")).unwrap();
            balancer.control.hangup();
            wait(balancer, "it is in force", peer.as_mut(), |it, _| it.weight() == 0);
        });
    }
}

#[test]
fn a_proposal_is_prepared_once_it_is_built_and_in_force_once_it_is_adopted() {
    run(|balancer, _, folder| {
        let next = balancer.config(folder);
        balancer.control.prepare(Arc::clone(&next), Some(stored()));
        wait(balancer, "it is prepared", None, |it, _| has_answered(it));
        assert_eq!(*balancer.control.proposal(), Proposal::Prepared);
        assert_eq!(balancer.weight(), 1);
        balancer.control.discard();
        assert_eq!(*balancer.control.proposal(), Proposal::None);
        assert!(!balancer.control.adopt(&stored()));
        balancer.control.prepare(next, Some(stored()));
        wait(balancer, "it is prepared", None, |it, _| has_answered(it));
        assert!(balancer.control.adopt(&stored()) && !balancer.control.adopt(&stored()));
        wait(balancer, "it is in force", None, |it, _| it.weight() == 0);
    });
}

#[test]
fn a_proposal_that_this_run_can_not_adopt_is_refused_with_the_reason() {
    run(|balancer, _, folder| {
        let mut other = (*balancer.config(folder)).clone();
        other.balancer.connections_max += 1;
        balancer.control.prepare(Arc::new(other), Some(stored()));
        wait(balancer, "it is refused", None, |it, _| has_answered(it));
        let Proposal::Refused(why) = balancer.control.proposal() else { panic!() };
        assert!(why.contains("balancer.connections_max can't change"), "{why}");
        assert_eq!(balancer.weight(), 1);
    });
}
