//! Requests of arbitrary bytes to a running balancer.

use crate::balancer::bench::egresses;
use hotloop::engine::{Control, Deployment, Engine, Idle, outlets};
use hotloop::stage::Error;
use hotloop::testing::MemoryPort;
use hotloop_balancer::balance::Route;
use hotloop_ops::{Reply, Request, Steer};
use ipip_lb::control;
use ipip_lb::network_function::NetworkFunction;
use ipip_lb::source::ConfigSource;
use serde_json::Value;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const CONFIG: &str = include_str!("balancer.toml");

/// Time limit for a request.
const ANSWER_WAIT: Duration = Duration::from_secs(8);

/// Between two turns of the control thread.
const TURN: Duration = Duration::from_micros(100);

type Answer = Result<Value, String>;

/// A running balancer, without packets, and its operator.
struct Running {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
}

/// Reads the bytes as a request, a line of JSON, and makes a running balancer answer it: with a
/// value, or with an error on one line.
pub fn run(bytes: &[u8]) {
    static RUNNING: OnceLock<Mutex<Running>> = OnceLock::new();
    let Ok(request) = serde_json::from_slice::<Request>(bytes) else { return };
    let running = RUNNING.get_or_init(|| Mutex::new(Running::start()));
    let running = running.lock().unwrap_or_else(PoisonError::into_inner);
    running.requests.send(request).expect("the balancer runs");
    let answer = running.answers.recv_timeout(ANSWER_WAIT).expect("an answer in time");
    if let Err(error) = answer {
        assert!(!error.is_empty() && !error.chars().any(char::is_control), "{error:?}");
    }
}

impl Running {
    fn start() -> Self {
        let (requests, of_requests) = channel();
        let (of_answers, answers) = channel();
        thread::spawn(move || balance(&of_requests, &of_answers));
        Self { requests, answers }
    }
}

/// Runs the balancer for as long as requests may come.
fn balance(requests: &Receiver<Request>, answers: &Sender<Answer>) {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let source = ConfigSource::file(folder.path().join("lb.toml"));
    std::fs::write(&source.config, CONFIG).expect("a file in that folder");
    let config = source.configuration().expect("a configuration that is sound");
    let (function, handles) = NetworkFunction::new(&config, egresses()).expect("memory");
    let mut operator = control::Control::start(source, config, handles).expect("threads");
    let silent = MemoryPort::new("silent");
    let graph = function.graph(
        |core| silent.rx_queue(core),
        |core| Ok::<_, Error>(outlets([(Route(0), silent.tx_queue(core)?)])),
    );
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).expect("a graph for one core");
    let run = plan.idle(Idle::Pause).run(|control| {
        while let Some(request) = next(requests, &mut operator, control) {
            if answers.send(answer(&mut operator, control, &request)).is_err() {
                break;
            }
        }
    });
    assert!(run.expect("a run").is_whole());
}

/// The next request, as soon as there is one; `None` if all senders are gone.
fn next(
    requests: &Receiver<Request>,
    operator: &mut control::Control,
    control: &Control<'_>,
) -> Option<Request> {
    loop {
        match requests.try_recv() {
            Ok(request) => return Some(request),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => operator.turn(control),
        }
        thread::sleep(TURN);
    }
}

fn answer(operator: &mut control::Control, control: &Control<'_>, request: &Request) -> Answer {
    let promise = match operator.answer(control, request) {
        Err(why) => return Err(why),
        Ok(Reply::Now(answer)) => return answer,
        Ok(Reply::Later(promise)) => promise,
        Ok(Reply::Stream(_)) => panic!("{request:?}: the balancer itself takes no connection over"),
    };
    let start = Instant::now();
    loop {
        if let Some(answer) = promise.answer() {
            let is_given_up = matches!(&answer, Err(why) if why.contains("gave this up"));
            assert!(!is_given_up, "{request:?}: nobody answers it");
            return answer;
        }
        assert!(start.elapsed() < ANSWER_WAIT, "{request:?}: no answer");
        operator.turn(control);
        thread::sleep(TURN);
    }
}
