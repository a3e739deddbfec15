//! Two captures of one conversation, replayed in the order in which their packets came.

use clap::Parser;
use hotloop::engine::{RunError, SourcesByTime, sources_by_time};
use hotloop::packet::build::udp;
use hotloop::prelude::*;
use hotloop_capture::CaptureWriter;
use hotloop_ops::RunArgs;
use hotloop_tests::{alone, device, eal};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

const QUESTION_COUNT: u16 = 1000;

/// A question is asked every millisecond, and answered 300 µs later, but for this one.
const LATE: u16 = 7;
const LATE_BY_NS: u64 = 5_000_000;

const SERVER_PORT: u16 = 53;

/// Answers pass this long after their questions.
const ANSWER_MAX_NS: u64 = 2_000_000;

drop_reasons! {
    /// Why an answer is dropped.
    enum AnswerDrop { Unasked = "unasked", Late = "late" }
}

/// Lets an answer pass if its question has passed, a short time ago.
struct Stateful {
    asked: HashMap<u16, Instant>,
    /// The question at which this panics.
    panics_at: Option<u16>,
}

impl<P: PacketBuf> Stage<P> for Stateful {
    type Out = P;
    type Drop = AnswerDrop;

    fn packet(&mut self, cx: &mut Cx<'_, AnswerDrop>, packet: P) -> Verdict<P> {
        let header = &packet.data()[34..];
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (from, to) = (port(0), port(2));
        if to == SERVER_PORT {
            if self.panics_at == Some(from) {
                std::panic::resume_unwind(Box::new("it is planted"));
            }
            self.asked.insert(from, cx.now());
            return Ok(packet);
        }
        match self.asked.remove(&to) {
            None => cx.drop(packet, AnswerDrop::Unasked),
            Some(at) if cx.now().ns_since(at) > ANSWER_MAX_NS => cx.drop(packet, AnswerDrop::Late),
            Some(_) => Ok(packet),
        }
    }
}

fn write(path: &Path, packets: impl Iterator<Item = (u64, Vec<u8>)>) {
    let mut file = CaptureWriter::new(File::create(path).unwrap()).unwrap();
    for (ns, frame) in packets {
        file.write(ns, &frame).unwrap();
    }
}

/// Devices that read the answers, and the questions: polled in that order, answers pass first.
fn ports(folder: &Path, arguments: &str) -> [Port; 2] {
    let asked_ns = |number: u16| 1_700_000_000_000_000_000 + u64::from(number) * 1_000_000;
    let paths = ["answers", "questions"].map(|name| folder.join(name));
    write(&paths[0], {
        let answer = |number: u16| {
            let late_ns = if number == LATE { LATE_BY_NS } else { 0 };
            let frame = udp()
                .from(format_args!("10.0.0.2:{SERVER_PORT}"))
                .to(format_args!("10.0.0.1:{}", 1024 + number))
                .build();
            (asked_ns(number) + 300_000 + late_ns, frame)
        };
        let mut answers: Vec<_> = (0..QUESTION_COUNT).map(answer).collect();
        answers.sort_by_key(|(ns, _)| *ns);
        answers.into_iter()
    });
    write(&paths[1], {
        let question = |number: u16| {
            udp()
                .from(format_args!("10.0.0.1:{}", 1024 + number))
                .to(format_args!("10.0.0.2:{SERVER_PORT}"))
                .build()
        };
        (0..QUESTION_COUNT).map(move |number| (asked_ns(number), question(number)))
    });
    paths.map(|path| {
        let arguments = format!(",rx_pcap={}{arguments}", path.display());
        Port::open(eal(), &device("net_pcap", &arguments)).unwrap_or_else(|it| panic!("{it}"))
    })
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    run: RunArgs,
}

/// Runs the stage between these sources and nothing, until `control` returns.
fn run<S: Source<Item = Packet>>(
    arguments: &str,
    clock: &str,
    panics_at: Option<u16>,
    merge: fn([hotloop::dpdk::RxQueue; 2]) -> S,
    control: impl FnOnce(&Control<'_>),
) -> Result<Report, RunError> {
    alone(|| {
        let folder = tempfile::tempdir().unwrap();
        let ports = ports(folder.path(), arguments);
        let nowhere = Port::open(eal(), &device("net_null", ",no-rx=1")).unwrap();
        let graph = source(|core| {
            let [answers, questions] = &ports;
            Ok::<_, hotloop::Error>(merge([answers.rx_queue(core)?, questions.rx_queue(core)?]))
        })
        .stage(|_| Stateful { asked: HashMap::new(), panics_at })
        .sink(|core| nowhere.tx_queue(core));
        let cli = Cli::parse_from(["replay", "--clock", clock]);
        let plan = cli.run.plan(graph, Deployment::run_to_completion(1)).unwrap();
        plan.run(control)
    })
}

fn to_the_end(control: &Control<'_>) {
    control.wait_until_finished();
}

fn merged(queues: [hotloop::dpdk::RxQueue; 2]) -> SourcesByTime<hotloop::dpdk::RxQueue> {
    sources_by_time(queues)
}

fn counts(report: &Report) -> [u64; 3] {
    assert!(report.is_whole(), "{report}");
    let dropped = |reason: &str| report.dropped.get(reason).copied().unwrap_or_default();
    [report.sent, dropped("unasked"), dropped("late")]
}

#[test]
fn answers_pass_after_their_questions_if_sources_are_merged_by_time() {
    let all = 2 * u64::from(QUESTION_COUNT);
    let report = run("", "capture", None, merged, to_the_end).unwrap();
    assert_eq!(counts(&report), [all - 1, 0, 1]);
    // By the wall clock, the late answer is in time.
    let report = run("", "wall", None, merged, to_the_end).unwrap();
    assert_eq!(counts(&report), [all, 0, 0]);
    // As fast as each goes, bursts of answers come before their questions.
    let report = run("", "capture", None, sources, to_the_end).unwrap();
    let [_, unasked, _] = counts(&report);
    assert!(unasked > 0, "{report}");
}

#[test]
fn what_was_read_ahead_is_in_the_account_when_a_run_is_stopped() {
    let soon = |control: &Control<'_>| {
        while control.snapshot().received < 10_000 {
            control.wait_for(Duration::from_millis(1));
        }
    };
    let report = run(",infinite_rx=1", "wall", None, merged, soon).unwrap();
    let [sent, unasked, late] = counts(&report);
    assert_eq!(report.received, sent + unasked + late, "{report}");
}

#[test]
fn what_was_read_ahead_is_in_the_account_after_a_panic() {
    let error = run("", "capture", Some(1024 + 500), merged, to_the_end).unwrap_err();
    let report = error.report().expect("it ran");
    assert!(report.balanced && report.pools_whole, "{report}");
    assert_eq!(report.devices.received, Some(report.received), "{report}");
    assert_eq!(report.received, report.sent + report.dropped_sum(), "{report}");
}
