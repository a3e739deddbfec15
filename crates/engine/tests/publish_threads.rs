//! Publishing to running cores: on threads, and in stages of a graph.

use crate::common::{DEPLOYMENTS, Parcel, World, watched, whole};
use hotloop_engine::{Chain, Engine, Idle, Mailbox, Subscriber, mailbox, publish, source};
use hotloop_stage::{Cx, Error, NoDrops, Stage, Verdict};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

const VERSION_COUNT: u64 = if cfg!(debug_assertions) { 5_000 } else { 50_000 };

/// A value with parts that belong together.
struct Version {
    number: u64,
    copies: Vec<u64>,
    freed_by: Arc<Mutex<Vec<ThreadId>>>,
}

impl Version {
    fn of(number: u64, freed_by: &Arc<Mutex<Vec<ThreadId>>>) -> Arc<Self> {
        Arc::new(Self { number, copies: vec![number; 16], freed_by: Arc::clone(freed_by) })
    }

    fn is_whole(&self) -> bool {
        self.copies.iter().all(|&copy| copy == self.number)
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        assert!(self.is_whole());
        self.freed_by.lock().unwrap().push(thread::current().id());
    }
}

#[test]
fn every_thread_reaches_the_newest_and_only_control_frees() {
    let freed_by = Arc::new(Mutex::new(Vec::new()));
    let (mut publisher, subscribers) = publish(Version::of(0, &freed_by));
    watched(|| {
        thread::scope(|scope| {
            let follow = |mut subscriber: Subscriber<Version>| {
                let mut last = 0;
                while subscriber.current().number < VERSION_COUNT {
                    if subscriber.take_up() {
                        assert!(subscriber.current().is_whole());
                        assert!(subscriber.current().number > last, "never an older one");
                        last = subscriber.current().number;
                    } else {
                        assert_eq!(subscriber.current().number, last);
                        thread::yield_now();
                    }
                }
                subscriber
            };
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let subscriber = subscribers.subscribe();
                    scope.spawn(move || follow(subscriber))
                })
                .collect();
            for number in 1..=VERSION_COUNT {
                publisher.publish(Version::of(number, &freed_by));
                if number % 16 == 0 {
                    thread::yield_now();
                }
            }
            while !publisher.collect() {
                thread::yield_now();
            }
            let ends: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert_eq!(freed_by.lock().unwrap().len() as u64, VERSION_COUNT, "all but the newest");
            drop(ends);
        });
    });
    drop((publisher, subscribers));
    let freed_by = freed_by.lock().unwrap();
    assert_eq!(freed_by.len() as u64, VERSION_COUNT + 1);
    assert!(freed_by.iter().all(|&id| id == thread::current().id()));
}

#[test]
fn a_subscriber_that_goes_early_keeps_nobody_waiting() {
    let freed_by = Arc::new(Mutex::new(Vec::new()));
    let (mut publisher, subscribers) = publish(Version::of(0, &freed_by));
    let (mut slow, early) = (subscribers.subscribe(), subscribers.subscribe());
    publisher.publish(Version::of(1, &freed_by));
    assert!(!publisher.collect(), "neither has taken it up");
    drop(early);
    assert!(!publisher.collect(), "one has not taken it up");
    assert!(slow.take_up());
    assert!(publisher.collect());
    publisher.publish(Version::of(2, &freed_by));
    drop(slow);
    assert!(publisher.collect());
    assert_eq!(freed_by.lock().unwrap().len(), 2, "all but the newest");
}

#[test]
fn subscribers_outlive_the_publisher() {
    let freed_by = Arc::new(Mutex::new(Vec::new()));
    let (mut publisher, subscribers) = publish(Version::of(0, &freed_by));
    let mut subscriber = subscribers.subscribe();
    publisher.publish(Version::of(1, &freed_by));
    drop((publisher, subscribers));
    assert!(subscriber.take_up());
    assert_eq!(subscriber.current().number, 1);
    assert!(!subscriber.take_up());
    assert!(freed_by.lock().unwrap().is_empty(), "taking up frees nothing");
    drop(subscriber);
    assert_eq!(freed_by.lock().unwrap().len(), 2);
}

/// Reports its current value on request.
struct Follow {
    version: Subscriber<u64>,
    questions: Mailbox<&'static str, (u64, u64)>,
    seen_count: u64,
    last: Arc<AtomicU64>,
}

impl Stage<Parcel> for Follow {
    type Out = Parcel;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, parcel: Parcel) -> Verdict<Parcel> {
        self.seen_count += 1;
        Ok(parcel)
    }

    fn tick(&mut self, _: &mut Cx<'_, NoDrops>) {
        if self.version.take_up() {
            self.last.store(*self.version.current(), SeqCst);
        }
        if let Some(question) = self.questions.request() {
            assert_eq!(question, "how far?");
            self.questions.answer((*self.version.current(), self.seen_count));
        }
    }
}

#[test]
fn stages_follow_and_answer_while_packets_run_and_when_none_come() {
    for deployment in DEPLOYMENTS {
        for is_busy in [true, false] {
            let world = World::new();
            let (mut publisher, subscribers) = publish(Arc::new(0));
            let (mut asker, mailboxes) = mailbox(2);
            let last = Arc::new(AtomicU64::new(0));
            let graph =
                source(|core| Ok::<_, Error>(world.rx(core, if is_busy { u64::MAX } else { 0 })))
                    .shard_by(|parcel| parcel.key)
                    .try_stage(|core| {
                        Ok::<_, Error>(Follow {
                            version: subscribers.subscribe(),
                            questions: mailboxes.open(core)?,
                            seen_count: 0,
                            last: Arc::clone(&last),
                        })
                    })
                    .sink(|core| world.tx_ok(core));
            let plan = Engine::plan(graph, deployment).unwrap().idle(Idle::Pause);
            let mut answers = Vec::new();
            let report = whole(watched(|| {
                plan.run(|_| {
                    (1..=100).for_each(|version| publisher.publish(Arc::new(version)));
                    while !publisher.collect() {
                        thread::yield_now();
                    }
                    assert_eq!(asker.cores(), 0..deployment.cores_in(1));
                    asker.cores().for_each(|core| asker.ask(core, "how far?").unwrap());
                    for core in asker.cores() {
                        answers.push(loop {
                            match asker.answer(core) {
                                Some(answer) => break answer,
                                None => thread::yield_now(),
                            }
                        });
                    }
                })
            }));
            assert_eq!(last.load(SeqCst), 100);
            assert!(answers.iter().all(|&(version, _)| version == 100), "{answers:?}");
            let seen_count: u64 = answers.iter().map(|&(_, count)| count).sum();
            assert!(seen_count <= report.received && (is_busy || report.received == 0));
            assert_eq!(asker.ask(0, "how far?"), Err("how far?"), "the run is over");
            assert!(publisher.collect(), "nobody is left to wait for");
        }
    }
}
