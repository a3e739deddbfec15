//! A core that receives published values, and answers requests, neither allocates nor frees.

mod common;

use common::watched;
use hotloop_engine::{mailbox, publish};
use hotloop_testing::{AllocCounts, AllocGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

#[global_allocator]
static GUARD: AllocGuard = AllocGuard;

const VERSION_COUNT: usize = 2_000;

#[test]
fn a_core_neither_allocates_nor_frees() {
    let (mut publisher, subscribers) = publish(Arc::new(vec![0; 100]));
    let (mut asker, mailboxes) = mailbox::<Vec<usize>, Vec<usize>>(4);
    let mut subscriber = subscribers.subscribe();
    let mut questions = mailboxes.open(&hotloop_stage::Core::new(0, 1)).unwrap();
    let stop = AtomicBool::new(false);
    let (taken_count, counts) = watched(|| {
        thread::scope(|scope| {
            let core = scope.spawn(|| {
                let armed = AllocGuard::arm();
                let mut taken_count = 0;
                while !stop.load(SeqCst) {
                    taken_count += usize::from(subscriber.take_up());
                    if let Some(mut room) = questions.request() {
                        room.push(subscriber.current()[99]);
                        questions.answer(room);
                    }
                    thread::yield_now();
                }
                let counts = armed.counts();
                (taken_count, counts)
            });
            for version in 1..=VERSION_COUNT {
                publisher.publish(Arc::new(vec![version; 100]));
                while !publisher.collect() {
                    thread::yield_now();
                }
                asker.ask(0, Vec::with_capacity(1)).expect("room for a question");
                let answer = loop {
                    match asker.answer(0) {
                        Some(answer) => break answer,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(answer, [version]);
            }
            stop.store(true, SeqCst);
            core.join().unwrap()
        })
    });
    assert_eq!((taken_count, counts), (VERSION_COUNT, AllocCounts::default()));
}
