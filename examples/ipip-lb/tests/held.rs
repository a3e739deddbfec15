//! A held worker delays only those who request something from it, however long it is held.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::namespace::{BALANCER, SILENT_PORT, command, service, threads, while_stopped};
use hotloop_ops::{ANSWER_WAIT, AskError, Request, ask, ask_within};
use hotloop_tests::{Program, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a worker is held.
const HELD: Duration = Duration::from_secs(5);

/// Maximum time for an answer, as a rule.
const WAIT: Duration = Duration::from_millis(100);

/// Interval of probes of the backend.
const INTERVAL: Duration = Duration::from_millis(100);

fn config(probed_port: u16) -> String {
    let interval_ms = INTERVAL.as_millis();
    let health = format!(
        "health = {{ kind = \"tcp\", port = {probed_port}, interval_ms = {interval_ms}, \
         timeout_ms = {interval_ms}, rise = 1, fall = 1 }}"
    );
    BALANCER.replace("workers = 1", "workers = 2")
        + SILENT_PORT
        + &service("web", "203.0.113.10 tcp 80", &health, &["127.0.0.1"])
}

/// Starts a balancer with two workers, which may be held for any time, and which notifies
/// `manager`.
fn run(folder: &Path, probed_port: u16, manager: &Path) -> Program {
    let mut run = command(folder, &config(probed_port));
    run.args(["--worker-stall-ms-max", "0"]).env("NOTIFY_SOCKET", manager);
    Program::start(run, &folder.join("lb.sock"))
}

fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = what();
    (result, start.elapsed())
}

/// Looks up the backend of a client's packets; the worker depends on the client's address.
fn lookup(client: u8) -> Request {
    let (client, vip) = (format!("198.51.100.{client}:4000"), "203.0.113.10:80");
    Request::with("lookup", json!({"protocol": "tcp", "client": client, "vip": vip}))
}

/// Lists connections, on a thread that waits for the answer.
fn listing(socket: &Path) -> JoinHandle<Result<Value, AskError>> {
    let socket = PathBuf::from(socket);
    std::thread::spawn(move || ask_within(&socket, &Request::new("connections"), 2 * ANSWER_WAIT))
}

#[test]
fn health_signals_and_other_queries_do_not_wait_for_a_worker() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("lb.sock");
    let manager = UnixDatagram::bind(folder.path().join("manager")).unwrap();
    manager.set_read_timeout(Some(2 * HELD)).unwrap();
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = backend.local_addr().unwrap().port();
    let program = run(folder.path(), port, &folder.path().join("manager"));
    let passed = || {
        let backends = program.ask("backends").unwrap();
        backends[0]["probe"].as_str().is_some_and(|it| it.starts_with("passed"))
    };
    wait_until("the backend is probed", passed);
    let worker_of = |client| ask(&socket, &lookup(client)).unwrap()["worker"].as_u64().unwrap();
    let of = |worker| (1..200).find(|client| worker_of(*client) == worker).unwrap();
    let [held, other] = [0, 1].map(of);

    let process = Pid::from_raw(i32::try_from(program.id()).unwrap());
    let all = threads(process);
    let worker = all.iter().find(|(_, name)| name == "core-0").expect("a worker").0;
    let (begun, mut waiting) = (Instant::now(), None);
    let stopped = while_stopped(worker, || {
        // Both wait for the worker: the second one waits for its turn.
        let listing = listing(&socket);
        let held_socket = socket.clone();
        let looking = std::thread::spawn(move || ask(&held_socket, &lookup(held)));
        std::thread::sleep(INTERVAL);
        let (answer, second) = timed(|| ask(&socket, &lookup(other)));
        assert_eq!(answer.unwrap()["worker"], 1);
        let (status, overview) = timed(|| ask(&socket, &Request::new("overview")));
        assert_eq!(status.unwrap()["down"], 0);
        drop(backend);
        let is_down = || ask(&socket, &Request::new("overview")).unwrap()["down"] == 1;
        let verdict = wait_until("the backend is down", is_down);
        println!(
            "a worker is held: another query takes {second:?}, ctl status {overview:?}, a verdict {verdict:?} with \
             a probe's interval of {INTERVAL:?}"
        );
        assert!(second < 10 * WAIT && overview < 10 * WAIT, "{second:?} {overview:?}");
        assert!(verdict < INTERVAL + 10 * WAIT, "{verdict:?}");
        std::thread::sleep(HELD.saturating_sub(begun.elapsed()));
        assert!(!listing.is_finished() && !looking.is_finished());
        waiting = Some((listing, looking));
    });
    if let Err(error) = stopped {
        return println!("skipped: no thread can be stopped alone (ptrace): {error}");
    }
    let (listing, looking) = waiting.expect("two clients");
    assert_eq!(listing.join().unwrap().unwrap(), json!({"matching": 0, "connections": []}));
    assert_eq!(looking.join().unwrap().unwrap()["worker"], 0);

    let stopped = while_stopped(worker, || {
        let _waiting = self::listing(&socket);
        std::thread::sleep(INTERVAL);
        let ((), ended) = timed(|| {
            kill(process, Signal::SIGTERM).unwrap();
            let mut message = [0; 1024];
            while !message.starts_with(b"STOPPING=1") {
                manager.recv(&mut message).expect("it says that it stops");
            }
        });
        println!("a worker is held: SIGTERM is seen after {ended:?}");
        assert!(ended < 10 * WAIT, "{ended:?}");
    });
    stopped.expect("it was stopped before");
    let (report, _) = program.wait();
    assert_eq!(report["balanced"], true, "{report}");
}
