//! The metrics of a running engine, with well-behaved and hostile clients.

mod numbers;

use hotloop_engine::{Chain, Control, Deployment, Engine, Graph, Plan, source};
use hotloop_ops::{Metric, Metrics, SCRAPE_COUNT_MAX, Scrape};
use hotloop_stage::{Burst, Source};
use numbers::{Even, Nothing, Number};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::convert::Infallible;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of packets from the source.
const PACKET_COUNT: u64 = 1000;

/// The longest wait, for a machine however busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts up to [`PACKET_COUNT`], and ends when `is_over` is set.
struct Count<'a> {
    next: u64,
    is_over: &'a AtomicBool,
}

impl Source for Count<'_> {
    type Item = Number;

    fn poll(&mut self, burst: &mut Burst<Number>) -> usize {
        let count = (PACKET_COUNT - self.next).min(8);
        burst.extend((self.next..self.next + count).map(Number));
        self.next += count;
        count as usize
    }

    fn finished(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

fn plan(is_over: &AtomicBool) -> Plan<impl Graph> {
    let graph = source(move |_| Ok::<_, Infallible>(Count { next: 0, is_over }))
        .stage(|_| Even)
        .sink(|_| Ok::<_, Infallible>(Nothing));
    Engine::plan(graph, Deployment::run_to_completion(1)).unwrap()
}

const SCRAPES: Metric = Metric::counter("nf_scrapes_total", &[], "Scrapes answered.");

/// Enough series to make an answer longer than the kernel buffers for a client that doesn't read.
const SERIES: Metric = Metric::gauge("nf_series", &["series"], "Nothing.");
const SERIES_COUNT: usize = 2_000;

/// Tests run one after the other: one of them counts the threads of this process.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs an engine, serves its metrics, and runs `clients` meanwhile.
fn serving(clients: impl FnOnce(SocketAddr) + Send) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let is_over = AtomicBool::new(false);
    let mut metrics = Metrics::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = metrics.address();
    let control = |control: &Control<'_>| {
        while control.snapshot().received < PACKET_COUNT {
            control.wait_for(Duration::from_millis(1));
        }
        std::thread::scope(|scope| {
            let clients = scope.spawn(|| clients(address));
            let mut scrape_count = 0;
            let mut count = |scrape: &mut Scrape| {
                scrape_count += 1;
                scrape.add(&SCRAPES, &[], scrape_count);
                for series in 0..SERIES_COUNT {
                    scrape.add(&SERIES, &[&format!("{series:0>180}")], 0);
                }
            };
            while !clients.is_finished() {
                metrics.answer(control, &mut count);
                control.wait_for(Duration::from_millis(1));
            }
            is_over.store(true, Ordering::Relaxed);
        });
    };
    let report = plan(&is_over).run(control).unwrap();
    assert_eq!((report.received, report.dropped["odd"]), (PACKET_COUNT, PACKET_COUNT / 2));
}

/// The whole answer to a request.
fn asked(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn scraped(address: SocketAddr) -> String {
    let answer = asked(address, GET);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    body.to_owned()
}

fn has(body: &str, sample: &str) {
    assert!(body.lines().any(|line| line == sample), "{sample} is not in:\n{body}");
}

#[test]
fn a_scrape_is_what_the_engine_has_counted() {
    serving(|address| {
        let body = scraped(address);
        for sample in [
            "hotloop_packets_received_total{core=\"core 0\",stage=\"source\"} 1000",
            "hotloop_packets_sent_total{core=\"core 0\",stage=\"sink\"} 500",
            "hotloop_packets_dropped_total{core=\"core 0\",stage=\"Even\",reason=\"odd\"} 500",
            // An event that has not happened is 0, not absent.
            "hotloop_packets_dropped_total{core=\"core 0\",stage=\"Even\",reason=\"never\"} 0",
            "hotloop_packets_dropped_total{core=\"core 0\",stage=\"sink\",reason=\"tx_full\"} 0",
            "hotloop_packets_unattributed_total{core=\"core 0\",stage=\"Even\"} 0",
            "hotloop_ledger_plausible 1",
            "nf_scrapes_total 1",
        ] {
            has(&body, sample);
        }
        assert!(body.contains("\nhotloop_build_info{program=\"metrics-"), "{body}");
        has(&scraped(address), "nf_scrapes_total 2");

        let request = b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
        let answer = asked(address, request);
        assert!(answer.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0"));
        assert!(answer.contains("\n# TYPE hotloop_packets_sent counter\n"), "{answer}");
        assert!(answer.contains("\nnf_scrapes_total 3\n") && answer.ends_with("\n# EOF\n"));
    });
}

#[test]
fn what_is_no_scrape_is_refused_with_what_to_do() {
    serving(|address| {
        for (request, status, what) in [
            ("GET / HTTP/1.1\r\n\r\n", "404", "/metrics"),
            ("DELETE /metrics HTTP/1.1\r\n\r\n", "405", "use GET"),
            ("hello\r\n\r\n", "400", "GET /metrics HTTP/1.1"),
        ] {
            let answer = asked(address, request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert!(answer.contains(what), "{answer}");
        }
        has(&scraped(address), "nf_scrapes_total 1");
    });
}

/// A figure of this process, by its name in `status` of procfs.
fn own(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Whether the other end has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn clients_that_stay_silent_keep_nobody_out() {
    const SILENT_COUNT: usize = 100;
    serving(|address| {
        let mut silent: Vec<_> =
            (0..SILENT_COUNT).map(|_| TcpStream::connect(address).unwrap()).collect();
        for (half, stream) in silent.iter_mut().enumerate().filter(|(index, _)| index % 2 == 0) {
            // Some connections may be known to be closed.
            let _ = stream.write_all(&GET[..half.min(GET.len() - 1)]);
        }
        has(&scraped(address), "nf_scrapes_total 1");
        let start = Instant::now();
        let mut open_count = usize::MAX;
        while open_count >= SCRAPE_COUNT_MAX && start.elapsed() < PATIENCE {
            open_count =
                silent.iter_mut().filter_map(|stream| (!is_closed(stream)).then_some(())).count();
        }
        assert!(open_count < SCRAPE_COUNT_MAX, "{open_count} are still open");
        // The other connections are closed in time.
        while open_count > 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
            open_count =
                silent.iter_mut().filter_map(|stream| (!is_closed(stream)).then_some(())).count();
        }
        assert_eq!(open_count, 0);
    });
}

/// Ends the attackers when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn clients_that_send_or_ask_for_much_take_no_memory_and_no_threads() {
    // Each is two threads.
    const ATTACKER_COUNT: usize = 3;
    const GROWTH_KIB_MAX: u64 = 64 << 10;
    serving(|address| {
        scraped(address);
        let (resident, is_over) = (own("VmRSS:"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // Even if an assertion fails: the scope waits for the attackers.
            let _over = Ends(&is_over);
            let endless = |request: &'static [u8]| {
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(mut stream) = TcpStream::connect(address) else { continue };
                    let _ = stream.write_all(request);
                    // A head without an end, or requests after the first, without reading any
                    // answer.
                    for _ in 0..1000 {
                        if stream.write_all(request).is_err() {
                            break;
                        }
                    }
                }
            };
            for _ in 0..ATTACKER_COUNT {
                scope.spawn(move || {
                    endless(b"GET /metrics HTTP/1.1\r\nX: xxxxxxxxxxxxxxxxxxxxxxxx")
                });
                scope.spawn(move || endless(GET));
            }
            let threads = own("Threads:");
            for _ in 0..20 {
                has(&scraped(address), "hotloop_ledger_plausible 1");
            }
            assert_eq!(own("Threads:"), threads);
        });
        let grown = own("VmRSS:").saturating_sub(resident);
        assert!(grown < GROWTH_KIB_MAX, "{grown} KiB more");
        has(&scraped(address), "hotloop_ledger_plausible 1");
    });
}

/// Connects from an address of this machine.
fn connected(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    connect(&socket, &to)?;
    Ok(socket.into())
}

/// A client's treatment of the answer to a scrape.
#[derive(Clone, Copy, Debug)]
enum Attack {
    /// Reads it, and asks again.
    Read,
    /// Goes away without it, and asks again.
    Leave,
    /// Keeps the connection, and opens more.
    Hold,
}

impl Attack {
    /// Scrapes in a loop.
    fn run(self, from: IpAddr, address: SocketAddr, is_over: &AtomicBool) {
        const HELD_COUNT: usize = 5;
        let mut held = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let Ok(mut stream) = connected(from, address) else { continue };
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let sent = stream.write_all(GET);
            match self {
                Self::Read => drop(sent.and_then(|()| stream.read_to_end(&mut Vec::new()))),
                Self::Leave => {}
                Self::Hold if held.len() < HELD_COUNT => held.push(stream),
                // Closed connections make room for others.
                Self::Hold => {
                    held.retain_mut(|stream| !is_closed(stream));
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
}

#[test]
fn clients_that_scrape_in_a_loop_keep_nobody_out() {
    const ATTACKER_COUNT: usize = 20;
    let (honest, other) = ("127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap());
    for (attack, from) in [
        (Attack::Read, honest),
        (Attack::Read, other),
        (Attack::Leave, honest),
        (Attack::Leave, other),
        (Attack::Hold, honest),
        (Attack::Hold, other),
    ] {
        serving(|address| {
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let over = Ends(&is_over);
                for _ in 0..ATTACKER_COUNT {
                    scope.spawn(|| attack.run(from, address, over.0));
                }
                let mut failures = Vec::new();
                for _ in 0..12 {
                    std::thread::sleep(Duration::from_millis(50));
                    let mut answer = String::new();
                    let asked = connected(honest, address).and_then(|mut stream| {
                        stream.set_read_timeout(Some(PATIENCE))?;
                        stream.write_all(GET)?;
                        stream.read_to_string(&mut answer)
                    });
                    let last = format!("{:0>180}\"}} 0\n", SERIES_COUNT - 1);
                    // Metrics are in the order of their names.
                    let end = answer.split_once(&last).map(|(_, end)| end.lines().last());
                    if !end.flatten().is_some_and(|end| end.starts_with("process_virtual_")) {
                        failures.push((asked, answer.len()));
                    }
                }
                let count = failures.len();
                assert!(failures.is_empty(), "{attack:?} from {from}: {count} of 12: {failures:?}");
            });
        });
    }
}
