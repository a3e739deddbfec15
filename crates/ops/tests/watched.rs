//! Workers that are stuck, starved or hindered, and notifications to systemd. Each test is the
//! parent of a copy of itself, since such a program ends in its own way.

mod numbers;

use hotloop_engine::{
    Chain, Control, Deployment, Engine, Graph, Placement, Plan, Report, Topology, source,
};
use hotloop_ops::{
    LogArgs, Operation, STALLED_END_WAIT, STALLED_EXIT_CODE, StallEvent, Steer, Watching,
    load_figures, notify, program,
};
use hotloop_privileges::Capabilities;
use hotloop_stage::{Burst, Cx, Device, DeviceCounters, Error, NoDrops, Source, Stage, Verdict};
use numbers::{Nothing, Number};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PART: &str = "HOTLOOP_TEST_PART";

/// The time after which a worker of these tests is stuck or starved.
const STALL_MAX: Duration = Duration::from_millis(400);

/// The longest wait: machines that test are busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Packets that arrive at a rate, and are lost if they aren't polled in time.
struct Arrivals {
    start: Instant,
    device: Arc<Counted>,
}

/// Packets that arrive in a millisecond, and those that find room.
const RATE_PER_MS: u64 = 1000;
const QUEUE_CAPACITY: u64 = 1024;

#[derive(Default)]
struct Counted {
    arrived: AtomicU64,
    received: AtomicU64,
    imissed: AtomicU64,
}

impl Source for Arrivals {
    type Item = Number;

    fn poll(&mut self, burst: &mut Burst<Number>) -> usize {
        let Counted { arrived, received, imissed } = &*self.device;
        let now = self.start.elapsed().as_nanos() as u64 * RATE_PER_MS / 1_000_000;
        let waiting = now - received.load(Relaxed) - imissed.load(Relaxed);
        imissed.fetch_add(waiting.saturating_sub(QUEUE_CAPACITY), Relaxed);
        arrived.store(now, Relaxed);
        let count = waiting.min(QUEUE_CAPACITY).min(burst.room() as u64);
        received.fetch_add(count, Relaxed);
        burst.extend((0..count).map(Number));
        count as usize
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.device) as Arc<dyn Device>]
    }
}

impl Device for Counted {
    fn name(&self) -> String {
        "counted0".into()
    }

    fn counters(&self) -> DeviceCounters {
        let (received, imissed) = (self.received.load(Relaxed), Some(self.imissed.load(Relaxed)));
        DeviceCounters { received, imissed, ..DeviceCounters::default() }
    }
}

/// Loops for ever once it has seen some packets, at one of two places or not at all.
#[derive(Clone, Copy, Default)]
struct Looper {
    in_packet: bool,
    in_tick: bool,
    seen_count: u64,
}

impl Looper {
    fn is_to_loop(self) -> bool {
        self.seen_count > 1000
    }
}

fn for_ever() {
    loop {
        std::hint::black_box(0);
    }
}

impl Stage<Number> for Looper {
    type Out = Number;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, number: Number) -> Verdict<Number> {
        self.seen_count += 1;
        if self.in_packet && self.is_to_loop() {
            for_ever();
        }
        Ok(number)
    }

    fn tick(&mut self, _: &mut Cx<'_, NoDrops>) {
        if self.in_tick && self.is_to_loop() {
            for_ever();
        }
    }
}

fn plan(looper: Looper) -> Plan<impl Graph> {
    let graph =
        source(|_| Ok::<_, Error>(Arrivals { start: Instant::now(), device: Arc::default() }))
            .stage(|_| Looper::default())
            .named("fine")
            .stage(move |_| looper)
            .sink(|_| Ok::<_, Error>(Nothing));
    Engine::plan(graph, Deployment::run_to_completion(1)).unwrap()
}

/// Does this work in each turn.
struct Work<'a>(&'a mut dyn FnMut());

impl Steer for Work<'_> {
    fn turn(&mut self, _: &Control<'_>) {
        (self.0)();
    }
}

fn run(plan: Plan<impl Graph>, watching: Watching<'_>, work: &mut dyn FnMut()) -> ExitCode {
    LogArgs::default().begin();
    let watching = watching.stall_max(STALL_MAX);
    let none = Capabilities::empty();
    // Runs until SIGTERM, as programs do.
    let operation = Operation { duration: Some(PATIENCE), ..Operation::default() };
    let run = hotloop_ops::run(plan, none, watching, |control| {
        operation.run(control, &mut Work(work));
    });
    match run {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The part of a copy of this program.
#[test]
fn copy() {
    let Ok(part) = std::env::var(PART) else { return };
    let fine = Looper::default();
    let code = program("nf", || match part.as_str() {
        "packet" => {
            let report = |report: &Report| format!("{}\n", report.to_json());
            let looper = Looper { in_packet: true, ..fine };
            run(plan(looper), Watching::default().report(report), &mut || ())
        }
        "tick" => run(plan(Looper { in_tick: true, ..fine }), Watching::default(), &mut || ()),
        "late" => {
            let on_stall = |_: &StallEvent| for_ever();
            let looper = Looper { in_packet: true, ..fine };
            run(plan(looper), Watching::default().on_stall(on_stall), &mut || ())
        }
        "fine" => run(plan(fine), Watching::default(), &mut || ()),
        "reload" => {
            let mut turns = 0;
            run(plan(fine), Watching::default(), &mut || {
                turns += 1;
                if turns == 3 {
                    notify::reloading();
                    notify::status("half\nway");
                    notify::ready();
                }
            })
        }
        "control" => {
            let mut turns = 0;
            run(plan(fine), Watching::default(), &mut || {
                turns += 1;
                if turns == 20 {
                    std::thread::sleep(6 * STALL_MAX);
                }
            })
        }
        "hindered" => hindered(),
        other => panic!("{other} is no part"),
    });
    std::process::exit(if code == ExitCode::SUCCESS { 0 } else { 1 });
}

/// A worker on a CPU that another thread uses.
fn hindered() -> ExitCode {
    let topology = Topology::read(Path::new("/"));
    let cpu = topology.cpus.last().expect("there is a CPU").id;
    let placement = Placement::explicit(&topology, &[cpu]).unwrap();
    let spinner = std::thread::Builder::new().name("spinner".into());
    let spin = move || {
        let mut cpus = rustix::thread::CpuSet::new();
        cpus.set(cpu);
        rustix::thread::sched_setaffinity(None, &cpus).unwrap();
        for_ever();
    };
    spinner.spawn(spin).unwrap();
    let mut is_said = false;
    let plan = plan(Looper::default()).placement(placement).unwrap();
    run(plan, Watching::default(), &mut || {
        let figures = load_figures();
        // The first are of a time in which its thread was not known yet.
        if let Some(core) = figures.first()
            && core.involuntary_switches > Some(0)
            && !is_said
        {
            is_said = true;
            tracing::info!("figures: {}", serde_json::to_string(core).unwrap());
        }
    })
}

fn command(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["copy", "--exact", "--nocapture"])
        .env(PART, part)
        .env_remove("JOURNAL_STREAM")
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Standard error of a copy, read in the background.
struct Said {
    text: std::sync::mpsc::Receiver<String>,
    so_far: String,
}

impl Said {
    fn of(child: &mut Child) -> Self {
        let mut stderr = child.stderr.take().unwrap();
        let (send, text) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut bytes) {
                let _ = send.send(String::from_utf8_lossy(&bytes[..count]).into_owned());
            }
        });
        Self { text, so_far: String::new() }
    }

    /// Waits until a line contains `part`.
    fn wait_for(&mut self, part: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.so_far.contains(part) {
            let rest = end.saturating_duration_since(Instant::now());
            match self.text.recv_timeout(rest) {
                Ok(more) => self.so_far.push_str(&more),
                Err(error) => panic!("no {part:?}: {error}: {}", self.so_far),
            }
        }
    }

    fn rest(mut self) -> String {
        self.so_far.extend(self.text.iter());
        self.so_far
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_stage_that_loops_for_ever_is_named_and_ends_the_process() {
    for (part, place) in [("packet", "Looper"), ("tick", "Looper")] {
        let Output { status, stdout, stderr } = command(part).output().unwrap();
        let (stdout, stderr) = (String::from_utf8(stdout), String::from_utf8(stderr));
        let (stdout, stderr) = (stdout.unwrap(), stderr.unwrap());
        assert_eq!(status.code(), Some(i32::from(STALLED_EXIT_CODE)), "{stderr}");
        let named = format!("core 0 is stuck in {place}: it used 0.4 s of CPU time");
        assert!(stderr.contains(&named), "{stderr}");
        if part == "tick" {
            assert!(stdout.contains("NOT WHOLE: core 0 is stuck in Looper"), "{stdout}");
            continue;
        }
        let json = stdout.lines().find(|line| line.starts_with('{')).expect("a report");
        let report: serde_json::Value = serde_json::from_str(json).unwrap();
        let [received, sent, inside] =
            ["received", "sent", "in_flight"].map(|key| report[key].as_u64().unwrap());
        assert!(received > 1000 && inside > 0 && received == sent + inside, "{report}");
        assert_eq!((&report["balanced"], &report["pools_whole"]), (&false.into(), &false.into()));
        assert!(report["findings"][0].as_str().unwrap().contains(&named), "{report}");
    }
}

#[test]
fn the_process_ends_also_where_what_it_calls_does_not_return() {
    let start = Instant::now();
    let output = command("late").output().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(STALLED_EXIT_CODE)));
    assert!(start.elapsed() >= STALLED_END_WAIT && start.elapsed() < PATIENCE);
}

#[test]
fn a_process_that_was_stopped_is_named_as_starved_and_goes_on() {
    let mut child = command("fine").spawn().unwrap();
    let mut said = Said::of(&mut child);
    said.wait_for("capabilities kept");
    // So that its workers are sampled once.
    std::thread::sleep(2 * STALL_MAX);
    signal(&child, Signal::STOP);
    std::thread::sleep(5 * STALL_MAX);
    signal(&child, Signal::CONT);
    said.wait_for("core 0 is starved: it got no CPU for ");
    said.wait_for("core 0 runs again");
    signal(&child, Signal::TERM);
    let status = child.wait().unwrap();
    let said = said.rest();
    assert!(status.success() && !said.contains("stuck"), "{said}");
}

#[test]
fn a_control_thread_that_stalls_is_named_and_the_watchdog_is_not_fed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let usec = (STALL_MAX / 2).as_micros().to_string();
    let mut child =
        command("control").env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", usec).spawn().unwrap();
    let mut said = Said::of(&mut child);
    let heard = |socket: &UnixDatagram| {
        let mut message = [0; 256];
        let count = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..count].to_vec()).unwrap()
    };
    assert_eq!(heard(&socket), "READY=1\nSTATUS=running");
    assert_eq!(heard(&socket), "WATCHDOG=1");
    said.wait_for("the control thread is stalled: it has not passed a turn for ");
    // Messages sent before.
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0; 256]).is_ok() {}
    std::thread::sleep(STALL_MAX);
    let fed = socket.recv(&mut [0; 256]).is_ok();
    socket.set_nonblocking(false).unwrap();
    said.wait_for("the control thread runs again");
    assert!(!fed, "{}", said.so_far);
    assert_eq!(heard(&socket), "WATCHDOG=1");
    signal(&child, Signal::TERM);
    while heard(&socket) != "STOPPING=1\nSTATUS=stopping" {}
    assert!(child.wait().unwrap().success(), "{}", said.rest());
}

#[test]
fn a_service_manager_hears_of_a_reload_with_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut child = command("reload").env("NOTIFY_SOCKET", &path).spawn().unwrap();
    let messages = (0..4).map(|_| {
        let mut message = [0; 256];
        let count = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..count].to_vec()).unwrap()
    });
    let messages: Vec<_> = messages.collect();
    signal(&child, Signal::TERM);
    assert!(child.wait().unwrap().success());
    assert_eq!(messages[0], "READY=1\nSTATUS=running");
    let usec = messages[1].lines().nth(1).and_then(|line| line.strip_prefix("MONOTONIC_USEC="));
    assert!(messages[1].starts_with("RELOADING=1\n"), "{messages:?}");
    assert!(usec.is_some_and(|usec| usec.parse::<u64>().unwrap() > 0), "{messages:?}");
    assert_eq!(messages[2], "STATUS=half way");
    assert_eq!(messages[3], messages[0]);
}

#[test]
fn a_thread_that_spins_on_a_workers_cpu_is_named() {
    let mut child = command("hindered").spawn().unwrap();
    let mut said = Said::of(&mut child);
    said.wait_for("figures: ");
    // On a busy machine other threads run there too.
    let named = format!("spinner (process {}, thread ", child.id());
    said.wait_for(&named);
    said.wait_for("(isolcpus)");
    signal(&child, Signal::TERM);
    assert!(child.wait().unwrap().success());
    let said = said.rest();
    let line = said.lines().find(|line| line.contains(&named)).unwrap();
    for part in ["core 0: ", " packets were lost (imissed)", " took CPU ", "pinned to it"] {
        assert!(line.contains(part), "{line}");
    }
    let figures = said.lines().find_map(|line| line.split_once("figures: ")).unwrap().1;
    let figures: serde_json::Value = serde_json::from_str(figures).unwrap();
    assert!(figures["involuntary_switches"].as_u64() > Some(0), "{figures}");
    assert!(figures["waited_percent"].as_f64() > Some(10.0), "{figures}");
    assert!(figures["load_percent"].as_f64() > Some(0.0), "{figures}");
}

#[test]
fn a_run_that_does_not_start_ends() {
    let (send, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let graph = source(|_| Err::<Arrivals, _>(Error::message("no such queue")))
            .sink(|_| Ok::<_, Error>(Nothing));
        let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
        let run = hotloop_ops::run(plan, Capabilities::empty(), Watching::default(), |_| ());
        send.send(run.unwrap_err().to_string()).unwrap();
    });
    let error = ended.recv_timeout(PATIENCE).expect("it ends");
    assert!(error.contains("no such queue"), "{error}");
}
