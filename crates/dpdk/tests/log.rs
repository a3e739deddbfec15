//! A subscriber to the events of DPDK's log, each in a process of its own, may do anything but stop
//! the program.

mod common;
mod subscriber;

use common::{core, open};
use hotloop_dpdk::{Eal, Port, lcore};
use std::cell::RefCell;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use subscriber::Calls;
use tracing::Event;

/// The behaviour of the subscriber in a child of [`run`].
const SUBSCRIBER: &str = "HOTLOOP_TEST_LOG";

/// Ten times as long as the slowest test takes here.
const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    /// A thread-local value like those of subscribers: gone before the thread is.
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

static EVENT_COUNT: AtomicUsize = AtomicUsize::new(0);
static REFUSED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Counts an event of DPDK, keeps part of it, and calls the function.
fn note(event: &Event<'_>, then: fn()) {
    if event.metadata().target() == "dpdk" {
        TEXT.with_borrow_mut(|text| text.push('.'));
        EVENT_COUNT.fetch_add(1, Relaxed);
        then();
    }
}

fn register() {
    let Some(eal) = Eal::current() else { return };
    if let Err(error) = lcore::register(eal) {
        assert!(error.to_string().contains("in an event of DPDK's log"), "{error}");
        REFUSED_COUNT.fetch_add(1, Relaxed);
    }
}

fn use_a_port() {
    let Some(eal) = Eal::current() else { return };
    REFUSED_COUNT.fetch_add(1, Relaxed);
    let port = Port::open(eal, "net_null_inside");
    unreachable!("{port:?}");
}

/// Runs in a child: threads register and end, with a port's queue among their thread-local values,
/// until no lcore is left.
#[test]
fn child() {
    let Ok(name) = std::env::var(SUBSCRIBER) else { return };
    let call: fn() = match &*name {
        "keeps_text" => || (),
        "panics" => || panic!("what takes the event panics"),
        "registers" => register,
        _ => use_a_port,
    };
    tracing::subscriber::set_global_default(Calls(move |event: &Event<'_>| note(event, call)))
        .unwrap();
    let arguments = ["--no-pci", "--no-huge", "-m", "256", "--log-level=lib.*:8"];
    let eal = Eal::with_args(&arguments).unwrap();
    thread_local!(static KEPT: RefCell<Option<hotloop_dpdk::RxQueue>> = const { RefCell::new(None) });
    for _ in 0..4 {
        let port = open("net_ring", "");
        let thread = thread::spawn(move || {
            KEPT.with_borrow_mut(|kept| *kept = Some(port.rx_queue(&core()).unwrap()));
        });
        thread.join().unwrap();
    }
    let all_there = Barrier::new(140);
    let registered: usize = thread::scope(|scope| {
        let register = || {
            let registered = lcore::register(eal).is_ok();
            all_there.wait();
            usize::from(registered)
        };
        let threads: Vec<_> = (0..140).map(|_| scope.spawn(register)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!((100..140).contains(&registered), "{registered}");
    println!("events: {EVENT_COUNT:?}, refused: {REFUSED_COUNT:?}");
}

/// The output of a child with this subscriber, which must end in time and without an error.
fn run(subscriber: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture"]).env(SUBSCRIBER, subscriber);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{subscriber}: {}: {said}", output.status);
    assert!(said.contains("events: ") && !said.contains("events: 0,"), "{subscriber}: {said}");
    said
}

#[test]
fn a_thread_that_ends_sends_no_events() {
    run("keeps_text");
}

#[test]
fn a_subscriber_that_panics_ends_nothing() {
    run("panics");
}

#[test]
fn a_subscriber_that_registers_an_lcore_is_refused() {
    let said = run("registers");
    assert!(!said.contains("refused: 0"), "{said}");
}

#[test]
fn a_subscriber_that_opens_a_port_panics() {
    let said = run("uses_a_port");
    assert!(!said.contains("refused: 0"), "{said}");
}
