//! The thread: its probes, its reports, and its end.

use super::server::{V4, closed_port, read_request, serve};
use super::{healthz, probed};
use hotloop_health::settings::Probe;
use hotloop_health::{HealthChange, Probed, Probes, State};
use std::collections::HashSet;
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time for any step, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn start() -> (Probes, Receiver<HealthChange>) {
    let (sender, changes) = mpsc::channel();
    (Probes::start(sender).unwrap(), changes)
}

fn until(probes: &Probes, mut is_so: impl FnMut(&[State]) -> bool) {
    let start = Instant::now();
    while !is_so(&probes.states()) {
        assert!(start.elapsed() < PATIENCE, "{:#?}", probes.states());
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_backend_goes_down_and_comes_up_with_its_server() {
    let status = Arc::new(AtomicUsize::new(200));
    let answered = Arc::clone(&status);
    let port = serve(V4, move |mut stream| {
        read_request(&mut stream);
        let status = answered.load(Ordering::SeqCst);
        // A probe that timed out is gone.
        let _ = write!(stream, "HTTP/1.1 {status} So\r\n\r\n");
    });
    let (mut probes, changes) = start();
    let mut web = probed(V4, port, Probe::Http(healthz()), 10_000);
    web.health.interval_ms = 10;
    probes.set(vec![web.clone(), web.clone()]);
    until(&probes, |states| states[0].passed_count >= 3);
    let [state] = &probes.states()[..] else { panic!("one is probed") };
    assert!(state.is_up && matches!(state.last, Some(Ok(_))), "{state:?}");
    assert!(changes.try_recv().is_err(), "nothing has changed");

    let change = |to: usize, is_up, why: &str| {
        status.store(to, Ordering::SeqCst);
        let Probed { address, health } = web.clone();
        let expected = HealthChange { address, health, is_up, why: why.into() };
        assert_eq!(changes.recv_timeout(PATIENCE).unwrap(), expected);
    };
    change(503, false, "status 503, expected 200");
    let [state] = &probes.states()[..] else { panic!("one is probed") };
    assert!(!state.is_up && state.failed_count >= 3, "{state:?}");
    change(200, true, "passed again");
}

#[test]
fn the_list_is_replaced() {
    let (mut probes, changes) = start();
    assert_eq!(probes.states(), []);
    let ((_taken, one), (_taken_too, other)) = (closed_port(V4), closed_port(V4));
    let down = |port| {
        let mut probed = probed(V4, port, Probe::Tcp, 10_000);
        probed.health.interval_ms = 20;
        probed
    };
    probes.set(vec![down(one)]);
    assert!(!changes.recv_timeout(PATIENCE).unwrap().is_up);
    let since = probes.states()[0].since;

    probes.set(vec![down(other), down(one)]);
    let change = changes.recv_timeout(PATIENCE).unwrap();
    assert_eq!((change.health.port, change.is_up), (other, false), "the first is known");
    let states = probes.states();
    assert_eq!(states.len(), 2);
    assert!(states.iter().all(|state| !state.is_up));
    assert_eq!(states[0].since, since);

    let mut slower = down(one);
    slower.health.interval_ms = 40;
    probes.set(vec![slower.clone()]);
    let change = changes.recv_timeout(PATIENCE).unwrap();
    assert_eq!((change.health, change.is_up), (slower.health, false), "it is down all the same");
    assert_eq!(&*change.why, "connection refused");
    probes.set(Vec::new());
    assert_eq!(probes.states(), []);
}

#[test]
fn hundreds_of_hosts_may_hang_at_once() {
    // Connections wait in a queue that is never read, as long as there is room in it.
    let hanging = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = hanging.local_addr().unwrap().port();
    let mut all: Vec<_> = (0..300)
        .map(|host| {
            let address = format!("127.0.{}.{}", 1 + host / 200, 1 + host % 200);
            let mut probed = probed(&address, port, Probe::Http(healthz()), 100);
            probed.health.fall = 1;
            probed
        })
        .collect();
    let (_taken, refused) = closed_port(V4);
    all.push(probed(V4, refused, Probe::Tcp, 100));

    let (mut probes, changes) = start();
    probes.set(all.clone());
    let mut left: HashSet<_> = all.iter().map(|probed| probed.address).collect();
    while !left.is_empty() {
        let change = changes.recv_timeout(PATIENCE).unwrap();
        assert!(!change.is_up);
        let hung = change.why.starts_with("timed out after 100 ms while ");
        assert!(hung || change.health.port == refused, "{}", change.why);
        left.remove(&change.address);
    }
}

#[test]
fn probes_of_one_backend_never_overlap() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&now), Arc::clone(&most));
    let port = serve(V4, move |mut stream| {
        let (now, most) = &counts;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        read_request(&mut stream);
        thread::sleep(Duration::from_millis(20));
        now.fetch_sub(1, Ordering::SeqCst);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    });
    let (mut probes, _changes) = start();
    let mut web = probed(V4, port, Probe::Http(healthz()), 60_000);
    web.health.interval_ms = 5;
    probes.set(vec![web]);
    until(&probes, |states| states[0].passed_count >= 10);
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert!(now.load(Ordering::SeqCst) <= 1);
}

#[test]
fn dropping_them_waits_for_no_probe() {
    let hanging = TcpListener::bind((V4, 0)).unwrap();
    let port = hanging.local_addr().unwrap().port();
    let (mut probes, changes) = start();
    let forever_ms = 3_600_000;
    probes.set(vec![probed(V4, port, Probe::Http(healthz()), forever_ms)]);
    let _under_way = hanging.accept().unwrap();
    drop(probes);
    assert!(changes.recv().is_err(), "nobody reports any more");
}
