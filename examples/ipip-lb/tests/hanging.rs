//! VIPs are withdrawn while the balancer hangs: all of it, one thread, or a worker for ever.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

#[allow(dead_code, reason = "this program uses a part of it")]
mod config;
mod namespace;

use hotloop::dpdk::{Eal, Mbuf};
use hotloop::engine::{Engine, outlets, sources};
use hotloop::packet::ethernet::MacAddress;
use hotloop::stage::{Burst, Core, Device, Error, Limits, Source};
use hotloop_balancer::balance::{Egress, Egresses, Route};
use hotloop_ops::{CONTROL, LogArgs, Operation, STALLED_EXIT_CODE, StallEvent, Steer, Watching};
use hotloop_tests::network::Network;
use hotloop_tests::{Program, wait_until};
use ipip_lb::announce;
use ipip_lb::config::Config;
use ipip_lb::control::Control;
use ipip_lb::network_function::NetworkFunction;
use ipip_lb::source::ConfigSource;
use ipip_lb::vip_guard;
use namespace::{ANNOUNCE, BALANCER, SILENT_PORT, command, routes, threads, while_stopped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The variable with the configuration's path, for the copy of this program.
const CONFIG_VARIABLE: &str = "HOTLOOP_TEST_CONFIG";

/// The hold of a VIP after its first withdrawal: the default of `announce.hold_s`.
const HOLD: Duration = Duration::from_secs(1);

/// The time after which a thread of these tests counts as hanging.
const STALL_MAX: Duration = Duration::from_millis(400);

const VIPS: [&str; 2] = ["203.0.113.10", "2001:db8:a::10"];

fn config() -> String {
    let [dns, six] = VIPS;
    [BALANCER, ANNOUNCE, SILENT_PORT].concat()
        + &namespace::dns("dns", dns, &["10.0.0.1"])
        + &namespace::dns("six", six, &["10.0.0.1"])
}

fn run(folder: &Path) -> Program {
    let mut run = command(folder, &config());
    run.args(["--worker-stall-ms-max", &STALL_MAX.as_millis().to_string()]);
    Program::start(run, &folder.join("lb.sock"))
}

#[test]
fn vips_are_withdrawn_until_what_was_stopped_goes_on() {
    let _network = match Network::with_ipv6() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let program = run(folder.path());
    let process = Pid::from_raw(i32::try_from(program.id()).unwrap());
    wait_until("all are announced", || routes() == VIPS);

    kill(process, Signal::SIGSTOP).unwrap();
    let withdrawn = wait_until("a stopped process", || routes().is_empty());
    kill(process, Signal::SIGCONT).unwrap();
    let back = wait_until("it goes on", || routes() == VIPS);
    println!("process: withdrawn after {withdrawn:?}, announced {back:?} after it went on");
    let mut hold = HOLD;
    assert!(back >= hold, "a VIP that was withdrawn is held for {hold:?}: {back:?}");

    let all = threads(process);
    let worker = all.iter().find(|(_, name)| name == "core-0").expect("a worker").0;
    for (what, thread) in [("worker", worker), ("control thread", process)] {
        let stopped = while_stopped(thread, || {
            let withdrawn = wait_until("a stopped thread", || routes().is_empty());
            // The running threads don't change that.
            std::thread::sleep(2 * STALL_MAX);
            assert!(routes().is_empty(), "{what}");
            println!("{what}: withdrawn after {withdrawn:?}");
        });
        if let Err(error) = stopped {
            return println!("skipped: no thread can be stopped alone (ptrace): {error}");
        }
        let back = wait_until("it goes on", || routes() == VIPS);
        println!("{what}: announced {back:?} after it went on");
        hold *= 2;
        assert!(back >= hold, "{what}: it flaps, and is held for {hold:?}: {back:?}");
    }

    let (report, errors) = program.end();
    assert_eq!(report["balanced"], true, "{report}");
    for said in [
        "withdrawn: 203.0.113.10: its process has not run for 0.4 s",
        "core 0 is starved: it got no CPU for 0.",
        "it is stopped, by a signal or a debugger",
        "core 0 runs again",
        "the control thread is stalled",
        "the control thread runs again",
        "announce: VIPs are withdrawn, in ",
    ] {
        assert!(errors.contains(said), "{said}: {errors}");
    }
    assert!(!errors.contains("stuck") && !errors.contains("no guard"), "{errors}");
    assert!(routes().is_empty());
}

/// Polls a source until it must loop for ever.
struct Looper<S> {
    source: S,
    loops: Arc<AtomicBool>,
}

impl<S: Source<Item = Mbuf>> Source for Looper<S> {
    type Item = Mbuf;

    fn poll(&mut self, burst: &mut Burst<Mbuf>) -> usize {
        while self.loops.load(SeqCst) {}
        self.source.poll(burst)
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.source.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.source.devices()
    }
}

/// The copy of this program: `ipip-lb run` with a worker that loops for ever once all VIPs are
/// announced.
#[test]
fn copy() {
    let Some(config) = std::env::var_os(CONFIG_VARIABLE) else { return };
    hotloop_ops::program("ipip-lb", || {
        LogArgs::default().begin();
        balance(PathBuf::from(config));
        ExitCode::SUCCESS
    });
}

/// Has the source loop once the VIPs are announced.
struct Announcing<'a> {
    operator: Control,
    loops: &'a AtomicBool,
}

impl Steer for Announcing<'_> {
    fn turn(&mut self, control: &hotloop::engine::Control<'_>) {
        self.operator.turn(control);
        if !self.loops.load(SeqCst) && routes() == VIPS {
            println!("announced: {:?}", routes());
            self.loops.store(true, SeqCst);
        }
    }
}

fn balance(path: PathBuf) {
    let config = Config::load(&path).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    program.arg("guard-vips");
    let guard = vip_guard::start_program(program, STALL_MAX);
    let eal = Eal::embedded().unwrap();
    let (vips, announcer) = announce::open(eal, &config, guard, None).unwrap().unwrap();
    let withdraw = announce::on_stall(&announcer);
    let on_stall = move |event: &StallEvent| {
        let start = Instant::now();
        withdraw(event);
        println!("before the exit: {:?} after {:?}", routes(), start.elapsed());
    };
    let mac = MacAddress::new([2, 0, 0, 0, 0, 1]);
    let egress = Egress { route: Route(0), source: mac, destination: mac };
    let egresses = Egresses { clients: egress, backends: egress };
    let (function, handles) = NetworkFunction::new(&config, egresses).unwrap();
    let source = ConfigSource::file(path);
    let deployment = config.engine.deployment();
    let operator = Control::start(source, config, handles).unwrap();
    let operator = operator.with_announcer(Some(announcer));
    let loops = Arc::new(AtomicBool::new(false));
    let graph = function.graph(
        |core: &Core| {
            let (source, loops) = (vips.source(core)?, Arc::clone(&loops));
            Ok(sources([Looper { source, loops }]))
        },
        |core: &Core| Ok(outlets([(Route(0), vips.sink(core)?)])),
    );
    let plan = Engine::plan(graph, deployment).unwrap();
    let watching = Watching::default().stall_max(STALL_MAX).on_stall(on_stall);
    let operation = Operation { duration: Some(Duration::from_secs(60)), ..Operation::default() };
    let _ = hotloop_ops::run(plan, CONTROL, watching, |control| {
        operation.run(control, &mut Announcing { operator, loops: &loops });
    });
}

#[test]
fn vips_are_withdrawn_before_a_process_ends_whose_worker_is_stuck() {
    let _network = match Network::with_ipv6() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("lb.toml");
    fs::write(&config, self::config()).unwrap();
    let mut copy = Command::new(std::env::current_exe().unwrap());
    copy.args(["copy", "--exact", "--nocapture"]).env(CONFIG_VARIABLE, &config);
    copy.env_remove("JOURNAL_STREAM").env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    let output = copy.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(i32::from(STALLED_EXIT_CODE)), "{stdout}{stderr}");
    assert!(stderr.contains("core 0 is stuck in "), "{stderr}");
    let line = stdout.lines().find(|line| line.starts_with("before the exit: [] after"));
    println!("{}", line.unwrap_or_else(|| panic!("{stdout}{stderr}")));
}
