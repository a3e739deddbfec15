//! The threads that an engine starts. This process has no others with such names.

use hotloop_engine::{Chain, Deployment, Engine, Graph, RunError, source};
use hotloop_stage::{Burst, Carries, Error, Sink, Source};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

struct Packet;

impl Carries for Packet {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// A source without packets, and a sink for it, which record whether anything was polled.
struct Nothing<'a>(&'a AtomicUsize);

impl Source for Nothing<'_> {
    type Item = Packet;

    fn poll(&mut self, _: &mut Burst<Packet>) -> usize {
        self.0.fetch_add(1, SeqCst);
        0
    }
}

impl Sink for Nothing<'_> {
    type Item = Packet;

    fn send(&mut self, burst: &mut Burst<Packet>) -> usize {
        let count = burst.len();
        burst.clear();
        count
    }
}

fn graph(polls: &AtomicUsize) -> impl Graph {
    source(move |_| Ok::<_, Error>(Nothing(polls)))
        .shard_by(|_| 0)
        .sink(move |_| Ok::<_, Error>(Nothing(polls)))
}

/// The names of this process's threads, from the kernel.
fn names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

#[test]
fn threads_have_names_of_their_own_that_the_kernel_keeps_whole() {
    let _one = ONE.lock().unwrap();
    let runs = [
        (Deployment::run_to_completion(12), vec![("core", 12)]),
        (Deployment::pipeline([11, 3]), vec![("g0-core", 11), ("g1-core", 3)]),
    ];
    for (deployment, roles) in runs {
        let (polls, mut found) = (AtomicUsize::new(0), Vec::new());
        let plan = Engine::plan(graph(&polls), deployment).unwrap();
        assert!(plan.run(|_| found = names()).unwrap().is_whole());
        for (role, count) in roles {
            for index in 0..count {
                let name = format!("{role}-{index}");
                assert_eq!(
                    found.iter().filter(|found| **found == name).count(),
                    1,
                    "{name}: {found:?}"
                );
            }
        }
    }
}

/// Only one of these tests at a time: they share the threads' names, and a count.
static ONE: Mutex<()> = Mutex::new(());

static STARTED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Number of polls of sources when a core was about to poll.
static POLL_COUNT: AtomicUsize = AtomicUsize::new(0);

#[test]
fn each_core_does_once_what_is_to_be_done_before_any_polls() {
    let _one = ONE.lock().unwrap();
    for deployment in [Deployment::run_to_completion(3), Deployment::pipeline([2, 3])] {
        STARTED_COUNT.store(0, SeqCst);
        POLL_COUNT.store(0, SeqCst);
        let plan = Engine::plan(graph(&POLL_COUNT), deployment).unwrap().once_started(|| {
            assert_eq!(POLL_COUNT.load(SeqCst), 0);
            STARTED_COUNT.fetch_add(1, SeqCst);
        });
        let mut count = 0;
        plan.run(|_| count = STARTED_COUNT.load(SeqCst)).unwrap();
        assert_eq!(count, deployment.core_count());
    }
}

#[test]
fn a_panic_in_it_fails_the_start() {
    let _one = ONE.lock().unwrap();
    let polls = AtomicUsize::new(0);
    let plan = Engine::plan(graph(&polls), Deployment::run_to_completion(2)).unwrap();
    let run = plan.once_started(|| panic!("on purpose")).run(|_| unreachable!("it does not run"));
    let Err(RunError::Start(error)) = run else { panic!("it fails") };
    assert!(error.to_string().contains("while it was being started: on purpose"), "{error}");
    assert_eq!(polls.load(SeqCst), 0);
}
