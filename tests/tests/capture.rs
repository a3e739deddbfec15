//! `ctl capture` on a running engine: the content of its files, compared with tcpdump's verdict on
//! the same frames.
#![allow(clippy::print_stdout, reason = "a test says what it skips")]

use hotloop::engine::{Control, Report};
use hotloop::packet::PacketBuf;
use hotloop::packet::build::{arp_request, echo_request, tcp, udp, unreachable};
use hotloop::packet::memory::MemPacket;
use hotloop::prelude::*;
use hotloop::stage::drop_reasons;
use hotloop_capture::{Capture, CaptureWriter};
use hotloop_ops::{
    CaptureArgs, CommonCommand, CtlArgs, Operation, Request, Socket, Steer, Summary, ask,
};
use hotloop_tests::{alone, eal, tool, wait_until};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Separated by commas; the first matches everything.
const EXPRESSIONS: &str = ", ip, ip6, arp, tcp, udp, icmp, icmp6, vlan, vlan 7 and tcp, host 198.51.100.7, \
     src host 198.51.100.7, dst net 203.0.113.0/24, net 2001:db8::/32, port 443, src port 53, \
     dst portrange 400-500, tcp port 443 and host 198.51.100.7, udp and not port 53, not ip, \
     ether broadcast, ether host 02:00:00:00:00:01, ip proto 4, greater 300, less 60, \
     tcp[tcpflags] & (tcp-syn|tcp-fin) != 0, icmp[icmptype] = icmp-unreach, ip[8] < 10, \
     udp[8:2] = 0x0707, (tcp and port 80) or (udp and port 53) or arp";

/// Frames of many kinds, all different.
fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for number in 1..=100_u16 {
        let client = format!("198.51.100.{}:{}", number % 10, 1000 + number);
        let client6 = format!("[2001:db8:c::{number}]:53");
        let payload = vec![7; usize::from(number) * 5];
        let request = || tcp().from(&client).to("203.0.113.10:443").payload(&payload);
        frames.extend([
            request().build(),
            request().tcp_flags(0x02).ttl(number as u8).build(),
            request().vlan(number % 10).build(),
            request().tunnelled("10.0.0.1", "192.0.2.1").build(),
            tcp().from(&client).to("203.0.113.10:80").build(),
            tcp().from(&client6).to("[2001:db8:f::10]:443").payload(&payload).build(),
            udp().from(&client6).to("[2001:db8:f::10]:9").payload(&payload).build(),
            udp().from(&client).to("203.0.113.10:53").payload(&payload).build(),
            echo_request(number, 1).from("198.51.100.7").to("203.0.113.10").build(),
            unreachable(&request().build()).build(),
            arp_request([10, 0, number as u8, 1].into(), [10, 0, 0, 2].into()),
        ]);
    }
    frames
}

/// Yields frames once it may, and then ends.
struct Gated<'a> {
    frames: &'a [Vec<u8>],
    next: usize,
    is_open: &'a AtomicBool,
    is_endless: bool,
}

impl Source for Gated<'_> {
    type Item = MemPacket;

    fn poll(&mut self, burst: &mut Burst<MemPacket>) -> usize {
        if !self.is_open.load(Relaxed) {
            return 0;
        }
        if self.is_endless && self.next == self.frames.len() {
            self.next = 0;
        }
        let rest = &self.frames[self.next..];
        let count = rest.len().min(burst.room());
        burst.extend(rest[..count].iter().map(|frame| MemPacket::new(frame)));
        self.next += count;
        count
    }

    fn finished(&self) -> bool {
        !self.is_endless && self.next == self.frames.len()
    }
}

drop_reasons! { enum LongDrop { TooLong = "too_long" } }

/// Drops packets longer than 500 bytes.
struct Short;

impl Stage<MemPacket> for Short {
    type Out = MemPacket;
    type Drop = LongDrop;

    fn packet(&mut self, cx: &mut Cx<'_, LongDrop>, packet: MemPacket) -> Verdict<MemPacket> {
        if packet.len_bytes() > 500 { cx.drop(packet, LongDrop::TooLong) } else { Ok(packet) }
    }
}

/// Takes everything.
struct Taker<'a>(&'a AtomicUsize);

impl Sink for Taker<'_> {
    type Item = MemPacket;

    fn send(&mut self, burst: &mut Burst<MemPacket>) -> usize {
        let count = burst.len();
        burst.clear();
        self.0.fetch_add(count, Relaxed);
        count
    }
}

/// Ends a run that is over.
struct Until<'a>(Option<&'a AtomicBool>);

impl Steer for Until<'_> {
    fn is_over(&mut self) -> bool {
        self.0.is_some_and(|it| it.load(Relaxed))
    }
}

/// A program that answers queries.
struct Bench {
    frames: Vec<Vec<u8>>,
    folder: TempDir,
    is_open: AtomicBool,
    sent: AtomicUsize,
}

impl Bench {
    fn new() -> Self {
        let _ = eal();
        let folder = tempfile::tempdir().unwrap();
        let (is_open, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { frames: frames(), folder, is_open, sent }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("nf.sock")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("out.pcapng")
    }

    /// Runs the program until the frames have passed, or until `is_over` if they repeat, with
    /// `client` beside it.
    fn run<T: Send>(
        &self,
        is_over: Option<&AtomicBool>,
        client: impl FnOnce() -> T + Send,
    ) -> (Report, T) {
        let mut socket = Socket::bind(&self.socket()).unwrap();
        self.is_open.store(false, Relaxed);
        let graph = source(|_| {
            let is_endless = is_over.is_some();
            let gated = Gated { frames: &self.frames, next: 0, is_open: &self.is_open, is_endless };
            Ok::<_, hotloop::Error>(gated)
        })
        .stage(|_| Short)
        .sink(|_| Ok::<_, hotloop::Error>(Taker(&self.sent)));
        let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
        let operation = Operation { socket: Some(&mut socket), ..Operation::default() };
        let steer = |control: &Control<'_>| operation.run(control, &mut Until(is_over));
        thread::scope(|scope| {
            let client = scope.spawn(client);
            let report = plan.run(steer).unwrap_or_else(|error| panic!("{error}"));
            (report, client.join().unwrap())
        })
    }

    /// The arguments for `ctl capture`.
    fn args(&self, expression: &str) -> CaptureArgs {
        CaptureArgs {
            expression: Some(expression.to_owned()).filter(|it| !it.is_empty()),
            write: self.file(),
            at: vec!["rx".to_owned()],
            worker: None,
            snaplen: None,
            sample: None,
            count: None,
            max_bytes: None,
        }
    }

    fn ctl(&self, args: CaptureArgs) -> ExitCode {
        let ctl = CtlArgs { control: Some(self.socket()), json: true };
        CommonCommand::Capture(args).ask("nf", &ctl)
    }

    /// Captures all frames that pass, and returns the ones in the file.
    fn captured(&self, args: &CaptureArgs) -> Vec<Vec<u8>> {
        let _ = fs::remove_file(self.file());
        let (report, code) = self.run(None, || {
            thread::scope(|scope| {
                let code = scope.spawn(|| self.ctl(args.clone()));
                let begins = || fs::metadata(self.file()).is_ok_and(|it| it.len() > 0);
                wait_until("the capture begins", || begins() || code.is_finished());
                self.is_open.store(true, Relaxed);
                code.join().unwrap()
            })
        });
        assert_eq!(code, ExitCode::SUCCESS, "{args:?}");
        assert_eq!(report.received, self.frames.len() as u64);
        hotloop_capture::read_frames(&self.file()).unwrap()
    }
}

fn tcpdump_is_missing() -> bool {
    tool("tcpdump").inspect_err(|why| println!("skipped: {why}")).is_err()
}

/// The frames of a file that match according to tcpdump.
fn tcpdump(path: &Path, expression: &str) -> Vec<Vec<u8>> {
    let output = tempfile::NamedTempFile::new().unwrap();
    let status = tool("tcpdump")
        .unwrap()
        .args(["-Z", "root", "-n", "-r", "-", "-w", "-", expression])
        .stdin(Stdio::from(fs::File::open(path).unwrap()))
        .stdout(Stdio::from(output.reopen().unwrap()))
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{expression}");
    hotloop_capture::read_frames(output.path()).unwrap()
}

#[test]
fn captures_equal_what_passed_by_tcpdumps_own_verdict() {
    if tcpdump_is_missing() {
        return;
    }
    alone(|| {
        let bench = Bench::new();
        let all = bench.folder.path().join("all.pcap");
        let mut writer = CaptureWriter::new(fs::File::create(&all).unwrap()).unwrap();
        for (number, frame) in bench.frames.iter().enumerate() {
            writer.write(number as u64, frame).unwrap();
        }
        for expression in EXPRESSIONS.split(", ") {
            let captured = bench.captured(&bench.args(expression));
            assert!(captured == tcpdump(&all, expression), "{expression}: {}", captured.len());
            // tcpdump can also read the file that was written.
            assert!(tcpdump(&bench.file(), "") == captured, "{expression}");
        }
    });
}

#[test]
fn drops_by_reason_snap_length_count_and_size_are_kept_to() {
    alone(|| {
        let bench = Bench::new();
        let args = CaptureArgs { at: vec!["drop=too_long".to_owned()], ..bench.args("") };
        let long: Vec<_> = bench.frames.iter().filter(|frame| frame.len() > 500).cloned().collect();
        assert!(bench.captured(&args) == long);
        let file = fs::read(bench.file()).unwrap();
        let comment = b"dropped as too_long";
        let count = file.windows(comment.len()).filter(|window| window == comment).count();
        assert_eq!(count, long.len());

        let args = CaptureArgs { snaplen: Some(60), count: Some(33), ..bench.args("tcp") };
        let captured = bench.captured(&args);
        assert_eq!(captured.len(), 33);
        assert!(captured.iter().all(|frame| (54..=60).contains(&frame.len())));

        let args = CaptureArgs { max_bytes: Some(20_000), ..bench.args("") };
        let captured = bench.captured(&args);
        assert!(captured == bench.frames[..captured.len()]);
        let size = fs::metadata(bench.file()).unwrap().len();
        assert!((18_000..=20_000).contains(&size), "{size}");
    });
}

#[test]
fn what_is_wrong_is_refused_and_costs_nothing() {
    alone(|| {
        let bench = Bench::new();
        let is_over = AtomicBool::new(false);
        bench.is_open.store(true, Relaxed);
        bench.run(Some(&is_over), || {
            bench.is_open.store(true, Relaxed);
            let refused = |arguments: Value| {
                let request = Request::with("capture", arguments);
                ask(&bench.socket(), &request).unwrap_err().to_string()
            };
            let wrong = |key: &str, value: Value| refused(serde_json::json!({ key: value }));
            assert!(wrong("expression", "tcp prot 9".into()).contains("libpcap says"));
            assert!(wrong("at", serde_json::json!(["drop=long"])).contains("too_long"));
            assert!(wrong("at", serde_json::json!(["here"])).contains("write rx, tx, drop"));
            assert!(wrong("worker", 1.into()).contains("there is no worker 1: there are 1"));
            assert!(wrong("snaplen", 0.into()).contains("snap length"));
            assert!(wrong("nonsense", 0.into()).contains("ctl capture --help"));
            is_over.store(true, Relaxed);
        });
    });
}

/// Reads the answer and everything else that comes within a moment.
fn begin_by_hand(bench: &Bench) -> UnixStream {
    let mut stream = UnixStream::connect(bench.socket()).unwrap();
    std::io::Write::write_all(&mut stream, b"{\"command\": \"capture\"}\n").unwrap();
    let mut start = [0; 6];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"{\"ok\":");
    stream
}

#[test]
fn a_client_that_reads_no_more_loses_records_and_the_program_no_packets() {
    alone(|| {
        let bench = Bench::new();
        let is_over = AtomicBool::new(false);
        let (report, summary) = bench.run(Some(&is_over), || {
            let mut stream = begin_by_hand(&bench);
            bench.is_open.store(true, Relaxed);
            let before = bench.sent.load(Relaxed);
            // Several times the bytes that all pages and sockets hold.
            wait_until("packets pass", || bench.sent.load(Relaxed) > before + 200_000);
            // The program answers other clients meanwhile.
            let status = ask(&bench.socket(), &Request::new("status")).unwrap();
            assert_eq!(status["is_plausible"], true);
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            is_over.store(true, Relaxed);
            let summary = rest.rsplit(|byte| *byte == b'{').next().unwrap();
            let summary = [b"{", summary.strip_suffix(b"}\n").unwrap()].concat();
            serde_json::from_slice::<Summary>(&summary).unwrap()
        });
        assert!(summary.lost > 0 && summary.captured > 1000, "{summary}");
        assert!(report.is_whole(), "{report}");
        assert_eq!(report.received, report.sent + report.dropped.values().sum::<u64>(), "{report}");
    });
}

#[test]
fn a_client_that_goes_away_ends_its_capture() {
    alone(|| {
        let bench = Bench::new();
        let is_over = AtomicBool::new(false);
        bench.run(Some(&is_over), || {
            bench.is_open.store(true, Relaxed);
            // More in sequence than may run at a time.
            for _ in 0..40 {
                wait_until("a capture begins", || {
                    let mut stream = UnixStream::connect(bench.socket()).unwrap();
                    std::io::Write::write_all(&mut stream, b"{\"command\": \"capture\"}\n")
                        .unwrap();
                    let mut start = [0; 6];
                    stream.read_exact(&mut start).unwrap();
                    &start == b"{\"ok\":"
                });
            }
            thread::sleep(Duration::from_millis(10));
            is_over.store(true, Relaxed);
        });
    });
}

#[test]
fn a_file_reads_while_it_grows() {
    alone(|| {
        let bench = Bench::new();
        let is_over = AtomicBool::new(false);
        bench.run(Some(&is_over), || {
            thread::scope(|scope| {
                let code = scope.spawn(|| bench.ctl(bench.args("udp port 53")));
                bench.is_open.store(true, Relaxed);
                let mut last = 0;
                for _ in 0..3 {
                    wait_until("more is in the file", || {
                        let Ok(mut capture) = Capture::open(&bench.file()) else { return false };
                        while capture.next_frame().unwrap().is_some() {}
                        let count = capture.contents().frame_count;
                        let is_more = count > last;
                        last = last.max(count);
                        is_more
                    });
                }
                is_over.store(true, Relaxed);
                assert_eq!(code.join().unwrap(), ExitCode::SUCCESS);
            });
        });
        let frames = hotloop_capture::read_frames(&bench.file()).unwrap();
        assert!(frames.len() > 100);
    });
}
