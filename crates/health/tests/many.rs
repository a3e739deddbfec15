//! Ten thousand backends, half of them hanging: all probes come at their intervals.

use super::server::{V4, closed_port, read_request};
use super::{healthz, probed};
use hotloop_health::settings::{Probe, Trust};
use hotloop_health::{Probes, State};
use rustix::net::listen;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const INTERVAL_MS: u32 = 4_000;
const TIMEOUT_MS: u32 = 2_000;

/// Number of each backend's probes to examine.
const PROBES: u32 = 4;

/// The times of connections to each address.
type Arrivals = Arc<Mutex<HashMap<IpAddr, Vec<Instant>>>>;

/// A server at all addresses of the loopback, in one thread, that records each connection and
/// passes it to `answer`.
fn serve_all(arrivals: &Arrivals, mut answer: impl FnMut(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    // This thread, too, may have to wait for its turn: no connection is refused then.
    listen(&listener, 4096).unwrap();
    let port = listener.local_addr().unwrap().port();
    let arrivals = Arc::clone(arrivals);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let address = stream.local_addr().unwrap().ip();
            arrivals.lock().unwrap().entry(address).or_default().push(Instant::now());
            answer(stream);
        }
    });
    port
}

/// Accepts connections, and keeps them for longer than a probe waits.
fn serve_none(arrivals: &Arrivals) -> u16 {
    let mut taken = VecDeque::new();
    serve_all(arrivals, move |stream| {
        let now = Instant::now();
        let is_over = |since: Instant| now - since > 2 * Duration::from_millis(TIMEOUT_MS.into());
        while taken.pop_front_if(|(since, _): &mut (Instant, _)| is_over(*since)).is_some() {}
        taken.push_back((now, stream));
    })
}

fn serve_well(arrivals: &Arrivals) -> u16 {
    serve_all(arrivals, |mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
    })
}

fn address(second: u8, number: usize) -> String {
    let [.., high, low] = (number as u32).to_be_bytes();
    Ipv4Addr::new(127, second, high, low).to_string()
}

fn start() -> (Probes, Receiver<hotloop_health::HealthChange>) {
    let (sender, changes) = mpsc::channel();
    (Probes::start(sender).unwrap(), changes)
}

/// Raises this process's limit of open files, and returns the number of backends that it suffices
/// for: each that hangs has two files here, and its server's file stays for as long again.
fn granted(wanted: usize) -> usize {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let most = maximum.map_or(wanted, |files| (files as usize).saturating_sub(1_500) * 2 / 3);
    if most < wanted {
        eprintln!("{most} backends instead of {wanted}: {maximum:?} open files are allowed");
    }
    wanted.min(most)
}

#[test]
fn ten_thousand_are_probed_at_their_intervals_while_half_of_them_hang() {
    let count = granted(10_000);
    let (well, none) = (Arrivals::default(), Arrivals::default());
    let (good, hanging) = (serve_well(&well), serve_none(&none));
    let backend = |number: usize| {
        let (second, port) = if number.is_multiple_of(2) { (1, good) } else { (2, hanging) };
        let probe = match number % 20 {
            1 => Probe::Https(healthz(), Trust::Insecure),
            3 => Probe::Tcp,
            _ => Probe::Http(healthz()),
        };
        let port = if matches!(probe, Probe::Tcp) { good } else { port };
        let mut probed = probed(&address(second, number), port, probe, TIMEOUT_MS);
        probed.health.interval_ms = INTERVAL_MS;
        (probed.health.rise, probed.health.fall) = (1, 2);
        probed
    };
    let all: Vec<_> = (0..count).map(backend).collect();
    let (mut probes, _changes) = start();
    let interval = Duration::from_millis(INTERVAL_MS.into());
    // First probes are spread over a second: one part's probes in each second are spread over an
    // interval.
    for part in 1..=4 {
        probes.set(all[..count * part / 4].to_vec());
        thread::sleep(interval / 4);
    }
    thread::sleep(interval * (PROBES - 1));
    let states = probes.states();
    drop(probes);

    let mut worst = 0.0_f64;
    for arrivals in [&well, &none] {
        for (address, times) in &*arrivals.lock().unwrap() {
            let [first, .., last] = times[..] else { panic!("{address}: {times:?}") };
            let mean = (last - first) / u32::try_from(times.len() - 1).unwrap();
            worst = worst.max((mean.as_secs_f64() / interval.as_secs_f64() - 1.0).abs());
        }
    }
    println!("{count} backends: mean intervals are off by {:.1} % at most", 100.0 * worst);
    assert!(worst <= 0.1, "{worst}");
    assert_eq!(well.lock().unwrap().len() + none.lock().unwrap().len(), count);
    for state in &states {
        let State { address, passed_count, failed_count, .. } = state;
        assert!(passed_count + failed_count >= u64::from(PROBES) - 1, "{state:?}");
        let hangs = state.health.port == hanging;
        assert_eq!(state.is_up, !hangs, "{address}: {state:?}");
    }
}

#[test]
fn what_hangs_in_one_service_delays_no_other() {
    let (well, none) = (Arrivals::default(), Arrivals::default());
    let hanging = serve_none(&none);
    let mut all: Vec<_> = (0..granted(3_000))
        .map(|number| {
            let probe = match number % 2 {
                0 => Probe::Http(healthz()),
                _ => Probe::Https(healthz(), Trust::Insecure),
            };
            let mut probed = probed(&address(3, number), hanging, probe, TIMEOUT_MS);
            probed.health.fall = u32::MAX;
            probed
        })
        .collect();
    let mut quick = probed(V4, serve_well(&well), Probe::Http(healthz()), TIMEOUT_MS);
    (quick.health.interval_ms, quick.health.fall) = (200, 2);
    all.push(quick.clone());
    let (mut probes, changes) = start();
    probes.set(all.clone());
    // Of the hanging backends, half of the probes are under way then, and the other half failed.
    thread::sleep(Duration::from_millis(3 * u64::from(TIMEOUT_MS) / 2));
    assert!(changes.try_recv().is_err(), "nothing has changed");

    let (_taken, closed) = closed_port(V4);
    quick.health.port = closed;
    *all.last_mut().unwrap() = quick;
    let before = Instant::now();
    probes.set(all);
    let change = changes.recv_timeout(Duration::from_secs(60)).unwrap();
    let took = before.elapsed();
    println!("down after {} ms beside {} that hang", took.as_millis(), none.lock().unwrap().len());
    assert_eq!((change.health.port, change.is_up), (closed, false));
    // Its first probe is at once, its second 200 ms later: this allows ten times that.
    assert!(took < Duration::from_secs(2), "{took:?}");
}
