//! A core that receives published values, answers requests or lists its state neither allocates nor
//! frees.

mod common;

use common::watched;
use hotloop_engine::{ListPage, Lister, mailbox, publish};
use hotloop_stage::Core;
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
    let mut questions = mailboxes.open(&Core::new(0, 1)).unwrap();
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

#[test]
fn a_core_that_lists_its_state_neither_allocates_nor_frees() {
    const COUNT: usize = 1_000;
    let (mut asker, mailboxes) = mailbox(1);
    let mut lister = Lister::new(mailboxes.open(&Core::new(0, 1)).unwrap());
    let mut page = Box::new(ListPage::new("all".to_owned(), usize::MAX));
    let mut row_count = 0;
    while !page.is_over() {
        page.turn_page(usize::MAX);
        asker.ask(0, page).expect("room for a page");
        let armed = AllocGuard::arm();
        page = loop {
            lister.tick(|_: &String, from: usize, budget, rows| {
                let end = COUNT.min(from + budget);
                (from..end).for_each(|number| rows.push([number; 4]));
                (end < COUNT).then_some(end)
            });
            if let Some(page) = asker.answer(0) {
                break page;
            }
        };
        assert_eq!(armed.counts(), AllocCounts::default());
        row_count += page.rows().len();
    }
    assert_eq!(row_count, COUNT);
}
