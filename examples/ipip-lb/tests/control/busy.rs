//! Answers while the configuration of 100,000 services is being loaded.

use super::program::{Program, config};
use crate::deployed::service;
use hotloop::packet::build::tcp;
use hotloop::packet::tcp::flags::SYN;
use hotloop_ops::{ANSWER_WAIT, AskError, Request, ask, ask_within};
use hotloop_tests::tool;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fmt::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SERVICES: u32 = 100_000;

/// Maximum time for an answer, as a rule.
const WAIT: Duration = Duration::from_millis(100);

/// The configuration with 100,000 additional services, which share a backend.
fn large(config: &str) -> String {
    let mut text = config.to_owned();
    for index in 0..SERVICES {
        let [_, high, middle, low] = index.to_be_bytes();
        write!(
            text,
            "[[service]]\nname = \"s{index}\"\naddress = \"20.{high}.{middle}.{low}\"\n\
             protocol = \"any\"\nports = \"any\"\nbackend = [{{ address = \"10.0.0.1\" }}]\n"
        )
        .unwrap();
    }
    text
}

fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = what();
    (result, start.elapsed())
}

fn asked(program: &Program, command: &str) -> Result<Value, AskError> {
    ask(&program.socket(), &Request::new(command))
}

/// Interval of probes of the backend; two failures take it down.
const INTERVAL: Duration = Duration::from_millis(200);

/// A server that accepts connections until it is dropped.
struct Server {
    port: u16,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let (port, is_over) = (listener.local_addr().unwrap().port(), Arc::default());
        let ends = Arc::<AtomicBool>::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                drop(listener.accept());
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self { port, is_over, thread: Some(thread) }
    }

    /// The configuration with a service whose backend is probed here.
    fn probed(&self) -> String {
        let (port, interval_ms) = (self.port, INTERVAL.as_millis());
        let keys =
            format!("port = {port}, interval_ms = {interval_ms}, timeout_ms = {interval_ms}");
        let health = format!("health = {{ kind = \"tcp\", {keys}, rise = 1, fall = 2 }}");
        config() + &service("probed", "203.0.113.12 tcp 80", &health, &["127.0.0.1"])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn status_and_health_do_not_wait_while_100_000_services_are_loaded() {
    let server = Server::start();
    let large = large(&server.probed());
    let program = Program::start_with(&large);
    let down = |status: &Value| status["down"].as_u64().unwrap();
    program.wait_until("it is probed", |it| {
        let backends = asked(it, "backends").unwrap();
        let mut probes = backends.as_array().unwrap().iter().map(|row| &row["probe"]);
        probes.any(|probe| probe.as_str().is_some_and(|it| it.starts_with("passed")))
    });
    program.configure(&large.replace("name = \"s7\"", "name = \"seven\""));
    let (mut server, mut end, mut known) = (Some(server), None, None);
    let socket = program.socket();
    let loading = std::thread::spawn(move || {
        timed(|| ask_within(&socket, &Request::new("reload"), 10 * ANSWER_WAIT))
    });
    let (mut longest, mut count) = (Duration::ZERO, 0);
    while !loading.is_finished() {
        let (status, took) = timed(|| asked(&program, "overview").unwrap());
        (longest, count) = (longest.max(took), count + 1);
        match end {
            None => (server, end) = (None, Some(Instant::now())),
            Some(end) if known.is_none() && down(&status) == 1 => known = Some(end.elapsed()),
            Some(_) => {}
        }
    }
    drop(server);
    let (answer, took) = loading.join().unwrap();
    let answer = answer.unwrap();
    assert_eq!(
        (&answer["services"], &answer["backends"]),
        (&json!(SERVICES + 4), &json!(SERVICES + 5))
    );
    assert_eq!(answer["changes"], json!(["service seven is new", "service s7 is gone"]));
    println!("loaded in {took:?}; {count} answers meanwhile, the longest wait {longest:?}");
    assert!(longest < 10 * WAIT, "{longest:?}");
    let known = known.expect("it loads for longer than health takes");
    println!(
        "after {known:?}, two intervals of {INTERVAL:?} included, a backend was known to be down"
    );
    assert!(known < 2 * INTERVAL + 10 * WAIT, "{known:?}");
    let status = asked(&program, "overview").unwrap();
    assert_eq!((&status["services"], down(&status)), (&json!(SERVICES + 4), 1));
    assert_eq!((&status["reloads"], &status["is_loading"]), (&json!(1), &json!(false)));
    program.end("-INT");
}

#[test]
fn signals_end_it_while_100_000_services_are_loaded() {
    let large = large(&config());
    // The end takes some time of its own.
    let idle = Program::start_with(&config());
    let ((), alone) = timed(|| drop(idle.end("-INT")));
    for signal in ["-INT", "-TERM"] {
        let program = Program::start_with(&config());
        program.configure(&large);
        program.signal("-HUP");
        let is_loading = |it: &Program| asked(it, "overview").unwrap()["is_loading"] == json!(true);
        program.wait_until("it loads", is_loading);
        let (report, took) = timed(|| program.end(signal));
        println!(
            "{signal}: ended after {took:?}, and after {alone:?} when nothing is being loaded"
        );
        assert!(took < alone + 10 * WAIT, "{took:?}");
        assert_eq!(report["balanced"], true);
    }
}

/// More connections than may be listed: the list has the maximum.
#[test]
fn nobody_waits_while_50_000_connections_are_listed() {
    const COUNT: u32 = 60_000;
    const LIMIT: usize = 50_000;
    // One worker, so that no ring between cores is ever full.
    let many = config()
        .replace("deployment = \"pipeline\"\n    workers = 2", "workers = 1")
        .replace("connections_max = 4096", "connections_max = 200_000");
    let syn = |index: u32| {
        let [_, high, middle, low] = index.to_be_bytes();
        tcp()
            .from(format!("20.{high}.{middle}.{low}:4000"))
            .to("203.0.113.10:80")
            .tcp_flags(SYN)
            .build()
    };
    let program = Program::start_with_frames(&many, (0..COUNT).map(syn));
    let overview = |it: &Program| asked(it, "overview").unwrap();
    program.wait_until("all frames", |it| overview(it)["balancer"]["admitted"] == COUNT);
    let socket = program.socket();
    let listing = std::thread::spawn(move || {
        let request = Request::with("connections", json!({ "limit": LIMIT }));
        timed(|| ask_within(&socket, &request, 10 * ANSWER_WAIT))
    });
    let (mut longest, mut count) = (Duration::ZERO, 0);
    while !listing.is_finished() {
        let (status, took) = timed(|| asked(&program, "overview"));
        assert_eq!(status.unwrap()["services"], 3);
        (longest, count) = (longest.max(took), count + 1);
    }
    let (answer, took) = listing.join().unwrap();
    let answer = answer.unwrap();
    println!("listed in {took:?}; {count} answers meanwhile, the longest wait {longest:?}");
    let rows = answer["connections"].as_array().unwrap();
    assert_eq!((rows.len(), &answer["matching"]), (LIMIT, &json!(COUNT)));
    let clients: HashSet<_> = rows.iter().map(|row| row["client"].as_str().unwrap()).collect();
    assert_eq!(clients.len(), LIMIT, "one is listed twice");
    assert!(longest < 10 * WAIT, "{longest:?}");
    program.end("-INT");
}

/// A path that isn't a file is refused at once, without waiting for opening or reading it.
#[test]
fn a_fifo_is_no_configuration_and_no_certificate() {
    let program = Program::start_with(&config());
    let path = |name: &str| program.folder.path().join(name);
    let fifo = |name: &str| {
        let made = tool("mkfifo").unwrap().arg(path(name)).status().unwrap();
        assert!(made.success());
    };
    fifo("ca.pem");
    let health = "health = { kind = \"https\", ca_file = \"ca.pem\" }";
    program.configure(&(config() + &service("tls", "203.0.113.12 tcp 443", health, &["10.0.0.5"])));
    let refusal = program.refusal(&["reload"], 1);
    assert!(refusal.contains("ca.pem: not a regular file"), "{refusal}");

    std::fs::remove_file(path("lb.toml")).unwrap();
    fifo("lb.toml");
    let refusal = program.refusal(&["reload"], 1);
    assert!(
        refusal.contains("lb.toml: --config: not a regular file; name a readable"),
        "{refusal}"
    );
    program.signal("-HUP");
    program.wait_until("SIGHUP", |it| it.has_said("SIGHUP: nothing has changed: lb.toml"));
    program.end("-TERM");
}
