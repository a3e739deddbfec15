//! Activity beside the cores: probes through the tunnels, captures, and scrapes.

use crate::traffic::probe;
use hotloop::dpdk::Filter;
use hotloop::engine::{Capture, CaptureConfig, Control, Points, Record};
use hotloop::prelude::*;
use hotloop::stage::tap;
use hotloop_balancer::balance::{BUFFER_BYTES, BUFFERS_MAX, Buffer};
use hotloop_ops::Metrics;
use hotloop_tests::eal;
use std::convert::Infallible;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// Interval between scrapes of metrics.
const SCRAPE_INTERVAL: Duration = Duration::from_millis(100);

/// The control side of worker 0's probes.
pub struct Probes {
    asker: Asker<Buffer, Buffer>,
    idle: Vec<Buffer>,
    sent_count: u64,
    reply_count: u64,
}

impl Probes {
    pub fn new(asker: Asker<Buffer, Buffer>) -> Self {
        let idle = (0..BUFFERS_MAX).map(|_| Vec::with_capacity(BUFFER_BYTES)).collect();
        Self { asker, idle, sent_count: 0, reply_count: 0 }
    }

    /// Takes replies, and returns their buffers to the worker; one buffer in eight is a probe to be
    /// sent.
    pub fn turn(&mut self) {
        while let Some(mut buffer) = self.asker.answer(0) {
            self.reply_count += u64::from(!buffer.is_empty());
            buffer.clear();
            self.idle.push(buffer);
        }
        while let Some(mut buffer) = self.idle.pop() {
            if self.sent_count.is_multiple_of(8) {
                buffer.extend_from_slice(&probe());
            }
            if let Err(mut refused) = self.asker.ask(0, buffer) {
                refused.clear();
                self.idle.push(refused);
                return;
            }
            self.sent_count += 1;
        }
    }

    pub fn check(&self) {
        assert!(self.reply_count > 1000 && self.sent_count > 1000, "{self:?}");
    }
}

impl fmt::Debug for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} buffers went, {} replies came", self.sent_count, self.reply_count)
    }
}

/// Two captures, one that takes some packets and one that takes none, and scrapes.
pub struct Everything<'scope> {
    captures: [Capture; 2],
    record_counts: [u64; 2],
    metrics: Metrics,
    scraper: ScopedJoinHandle<'scope, u64>,
    is_over: Arc<AtomicBool>,
}

impl<'scope> Everything<'scope> {
    pub fn begin(control: &Control<'_>, scope: &'scope Scope<'scope, '_>) -> Self {
        let metrics = Metrics::bind("127.0.0.1:0".parse().expect("an address")).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (address, flag) = (metrics.address(), Arc::clone(&is_over));
        let scraper = scope.spawn(move || scrape_until(address, &flag));
        let captures =
            ["ip6 or icmp", "ether proto 0x1234"].map(|expression| capture(control, expression));
        Self { captures, record_counts: [0; 2], metrics, scraper, is_over }
    }

    /// Work to be done every few milliseconds.
    pub fn turn(&mut self, control: &Control<'_>) {
        self.metrics.answer(control, &mut |_| {});
        for (capture, count) in self.captures.iter_mut().zip(&mut self.record_counts) {
            *count += drain(capture);
        }
    }

    /// Ends all activity, and checks that it took place: captures saw at least `seen_min` packets.
    pub fn end(mut self, control: &Control<'_>, seen_min: u64) {
        let (counts, captures) = (self.record_counts, &self.captures);
        assert!(counts[0] > 10_000 && counts[1] == 0, "{counts:?}");
        assert!(captures.iter().all(|it| it.totals().seen > seen_min), "{captures:?}");
        self.is_over.store(true, Relaxed);
        while !self.scraper.is_finished() {
            self.turn(control);
            control.wait_for(Duration::from_millis(1));
        }
        let scrape_count = self.scraper.join().expect("each scrape was answered");
        assert!(scrape_count > 1, "{scrape_count} scrapes");
    }
}

/// A capture of every place.
fn capture(control: &Control<'_>, expression: &str) -> Capture {
    let filter = Filter::compile(eal(), expression).unwrap();
    let filter: Option<Arc<dyn tap::Filter>> = Some(Arc::new(filter));
    let config = CaptureConfig { points: Points::ALL, filter, ..CaptureConfig::default() };
    control.taps().capture(&config).unwrap()
}

/// Drains a capture's copies. Returns the number of records.
fn drain(capture: &mut Capture) -> u64 {
    let mut count = 0;
    let mut take = |_: &Record<'_>| {
        count += 1;
        Ok::<_, Infallible>(())
    };
    capture.drain(&mut take).expect("nothing fails");
    count
}

/// Scrapes metrics until the end, and returns how often.
fn scrape_until(address: SocketAddr, is_over: &AtomicBool) -> u64 {
    let mut count = 0;
    while !is_over.load(Relaxed) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: steady\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\nhotloop_"), "{answer}");
        count += 1;
        std::thread::sleep(SCRAPE_INTERVAL);
    }
    count
}
