//! Queries of a running engine.

use crate::numbers::{Even, Nothing, Number};
use hotloop_engine::{Chain, Control, Deployment, Engine, Graph, Plan, Waited, source};
use hotloop_ops::{
    AskError, Metric, Metrics, Operation, Reply, Request, Scrape, Socket, Steer, ask,
};
use hotloop_stage::{Burst, Source};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Counts up until `is_over` is set.
pub struct Count<'a> {
    pub next: u64,
    pub is_over: &'a AtomicBool,
}

impl Source for Count<'_> {
    type Item = Number;

    fn poll(&mut self, burst: &mut Burst<Number>) -> usize {
        if self.finished() {
            return 0;
        }
        let count = burst.room().min(8);
        burst.extend((self.next..).take(count).map(Number));
        self.next = self.next.wrapping_add(8);
        count
    }

    fn finished(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

fn plan(is_over: &AtomicBool, deployment: Deployment) -> Plan<impl Graph> {
    let graph = source(move |_| Ok::<_, Infallible>(Count { next: 0, is_over }))
        .stage(|_| Even)
        .shard_by(|number: &Number| (number.0 as u32).wrapping_mul(0x9e37_79b9))
        .sink(|_| Ok::<_, Infallible>(Nothing));
    Engine::plan(graph, deployment).unwrap()
}

fn asked(path: &Path, command: &str) -> Value {
    ask(path, &Request::new(command)).unwrap()
}

fn sum(places: &Value, kind: &str, key: &str) -> u64 {
    let places = places.as_array().unwrap().iter().filter(|place| place["place"] == kind);
    places.map(|place| place[key].as_u64().unwrap()).sum()
}

fn is_under_way(status: &Value) -> bool {
    let cores = status["cores"].as_array().unwrap();
    let has_passed = |core: &Value| {
        let left = core["sent"].as_u64().unwrap() + core["crossed"].as_u64().unwrap();
        core["received"].as_u64() > Some(0) && left > 0
    };
    !cores.is_empty() && cores.iter().all(has_passed) && status["dropped"].as_u64() > Some(0)
}

/// Queries a program in this deployment while it runs.
fn ask_all(path: &Path, cores: &[&str]) {
    // The socket is there before the cores are.
    let asked_often = (0..5000).map(|_| asked(path, "status"));
    let status = asked_often.into_iter().find(is_under_way).expect("all cores run");
    assert_eq!(status["process"], std::process::id());
    assert_eq!(status["is_plausible"], true, "{status}");
    assert!(status["uptime_s"].as_f64().unwrap() > 0.0);
    let own = std::env::current_exe().unwrap();
    assert_eq!(status["program"].as_str(), own.file_name().unwrap().to_str(), "{status}");
    let named: Vec<_> = status["cores"].as_array().unwrap().iter().collect();
    let names: Vec<_> = named.iter().map(|core| core["core"].as_str().unwrap()).collect();
    assert_eq!(names, cores);
    let dropped: u64 = named.iter().map(|core| core["dropped"].as_u64().unwrap()).sum();
    assert_eq!(status["dropped"], dropped);

    let counters = asked(path, "counters");
    let (received, sent) = (counters["received"].as_u64(), counters["sent"].as_u64());
    assert!(received >= status["received"].as_u64() && sent >= status["sent"].as_u64());
    assert_eq!(sent, Some(sum(&counters["places"], "sink", "emitted")));
    // When rings fill up, the engine drops by reasons of its own.
    let reasons = counters["dropped"].as_object().unwrap().values();
    let dropped_later: u64 = reasons.map(|count| count.as_u64().unwrap()).sum();
    assert!(dropped_later >= dropped && Some(dropped_later) <= received, "{status} {counters}");
    let odd = counters["dropped"]["odd"].as_u64().unwrap();
    let even = sum(&counters["places"], "stage", "received");
    assert!(even >= odd, "{counters}");
}

#[test]
fn status_and_counters_tell_of_each_core_while_it_runs() {
    for (deployment, cores) in [
        (Deployment::run_to_completion(2), vec!["core 0", "core 1"]),
        (Deployment::pipeline([1, 1]), vec!["group 0 core 0", "group 1 core 0"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nf.sock");
        let mut socket = Socket::bind(&path).unwrap();
        let is_over = AtomicBool::new(false);
        let mut waited = None;
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let done = std::panic::catch_unwind(|| ask_all(&path, &cores));
                is_over.store(true, Ordering::Relaxed);
                done
            });
            let run = plan(&is_over, deployment)
                .run(|control| waited = Some(with(&mut socket).run(control, &mut ())));
            assert!(run.unwrap().is_whole());
            client.join().unwrap().unwrap();
        });
        assert_eq!(waited, Some(Waited::Finished));
    }
}

/// A program whose weight is set by an own command.
struct Weighing {
    weight: u64,
    /// Sum of the weight over turns.
    turned: u64,
}

impl Steer for Weighing {
    fn answer(&mut self, _: &Control<'_>, request: &Request) -> Result<Reply, String> {
        match request.command.as_str() {
            "weight" => {
                self.weight = request.arguments.as_u64().ok_or("give a weight, such as 3")?;
                Ok(json!(self.weight).into())
            }
            _ => request.unknown(),
        }
    }

    fn turn(&mut self, _: &Control<'_>) {
        self.turned += self.weight;
    }
}

pub fn with(socket: &mut Socket) -> Operation<'_> {
    Operation { socket: Some(socket), ..Operation::default() }
}

#[test]
fn other_commands_are_the_programs_own_and_the_loop_does_its_other_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nf.sock");
    let mut socket = Socket::bind(&path).unwrap();
    let is_over = AtomicBool::new(false);
    // All belongs to the control thread: the answer changes values that the turns work on.
    let mut weighing = Weighing { weight: 1, turned: 0 };
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let answers = [
                ask(&path, &Request::with("weight", json!(7))),
                ask(&path, &Request::new("weight")),
                ask(&path, &Request::new("bogus")),
            ];
            is_over.store(true, Ordering::Relaxed);
            answers
        });
        let run = plan(&is_over, Deployment::run_to_completion(1))
            .run(|control| with(&mut socket).run(control, &mut weighing));
        assert!(run.unwrap().is_whole());
        let [set, wrong, unknown] = client.join().unwrap();
        assert_eq!(set.unwrap(), 7);
        assert!(matches!(wrong, Err(AskError::Refused(text)) if text.contains("such as 3")));
        assert!(matches!(unknown, Err(AskError::Refused(text)) if text.contains("\"bogus\"")));
    });
    assert_eq!(weighing.weight, 7);
    assert!(weighing.turned >= 7);
}

const TURNS: Metric = Metric::counter("nf_turns_total", &[], "Turns.");

/// Ends by itself, after a while in which packets still pass.
#[derive(Default)]
struct Ending {
    turn_count: u64,
    ended_at: Option<u64>,
}

impl Steer for Ending {
    fn turn(&mut self, _: &Control<'_>) {
        self.turn_count += 1;
    }

    fn is_over(&mut self) -> bool {
        self.turn_count == 3
    }

    fn end(&mut self) -> Duration {
        assert_eq!(self.ended_at.replace(self.turn_count), None, "it ends once");
        Duration::from_millis(40)
    }

    fn metrics(&mut self, scrape: &mut Scrape) {
        scrape.add(&TURNS, &[], self.turn_count);
    }
}

#[test]
fn a_program_ends_its_run_and_turns_go_on_for_as_long_as_it_wants() {
    let (is_over, mut ending) = (AtomicBool::new(false), Ending::default());
    let mut waited = None;
    plan(&is_over, Deployment::run_to_completion(1))
        .run(|control| waited = Some(Operation::default().run(control, &mut ending)))
        .unwrap();
    assert_eq!((waited, ending.ended_at), (Some(Waited::Elapsed), Some(3)));
    assert!(ending.turn_count > 3, "{} turns", ending.turn_count);
}

#[test]
fn a_scrape_has_the_metrics_of_the_program_too() {
    let (is_over, mut ending) = (AtomicBool::new(false), Ending::default());
    let mut metrics = Metrics::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = metrics.address();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            is_over.store(true, Ordering::Relaxed);
            answer
        });
        let operation = Operation { metrics: Some(&mut metrics), ..Operation::default() };
        ending.turn_count = 10;
        plan(&is_over, Deployment::run_to_completion(1))
            .run(|control| operation.run(control, &mut ending))
            .unwrap();
        let answer = client.join().unwrap();
        assert!(answer.contains("nf_turns_total 1"), "{answer}");
        assert!(answer.contains("hotloop_packets_received_total"), "{answer}");
    });
}

#[test]
fn a_run_ends_when_its_time_is_up_also_without_a_socket() {
    let is_over = AtomicBool::new(false);
    for duration in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(12)] {
        let mut waited = None;
        let operation = Operation { duration: Some(duration), ..Operation::default() };
        plan(&is_over, Deployment::run_to_completion(1))
            .run(|control| waited = Some(operation.run(control, &mut ())))
            .unwrap();
        assert_eq!(waited, Some(Waited::Elapsed), "{duration:?}");
    }
}
