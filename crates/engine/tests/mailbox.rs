//! Any sequence of requests and answers behaves like two queues; threads get every answer.

use crate::common::watched;
use hotloop_engine::{Asker, Mailbox, mailbox};
use hotloop_stage::Core;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

#[derive(Clone, Copy, Debug)]
enum Op {
    Ask,
    Request,
    Answer,
    Hear,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![3 => Just(Op::Ask), 3 => Just(Op::Request), 3 => Just(Op::Answer), 2 => Just(Op::Hear)]
}

/// One core's mailbox, and its expected contents.
struct Run {
    capacity: usize,
    asker: Asker<u32, u32>,
    mailbox: Mailbox<u32, u32>,
    requests: VecDeque<u32>,
    owed: VecDeque<u32>,
    answers: VecDeque<u32>,
    asked_count: u32,
}

impl Run {
    fn new(capacity: usize) -> Self {
        let (asker, mailboxes) = mailbox(capacity);
        let mailbox = mailboxes.open(&Core::new(0, 1)).unwrap();
        let (requests, owed, answers) = Default::default();
        Self { capacity, asker, mailbox, requests, owed, answers, asked_count: 0 }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Ask => {
                self.asked_count += 1;
                match self.asker.ask(0, self.asked_count) {
                    Ok(()) => self.requests.push_back(self.asked_count),
                    Err(request) => {
                        assert_eq!(request, self.asked_count);
                        assert!(self.requests.len() >= self.capacity);
                    }
                }
            }
            Op::Request => match self.mailbox.request() {
                Some(request) => {
                    assert_eq!(Some(request), self.requests.pop_front());
                    self.owed.push_back(request);
                }
                None => {
                    let is_full = self.owed.len() + self.answers.len() >= self.capacity;
                    assert!(is_full || self.requests.is_empty());
                }
            },
            Op::Answer => {
                // The last asked is answered first.
                if let Some(request) = self.owed.pop_back() {
                    self.mailbox.answer(request * 2);
                    self.answers.push_back(request * 2);
                }
            }
            Op::Hear => assert_eq!(self.asker.answer(0), self.answers.pop_front()),
        }
    }
}

proptest! {
    #[test]
    fn behaves_like_two_queues(
        capacity in 0..10_usize,
        ops in prop::collection::vec(op(), 0..200),
    ) {
        let mut run = Run::new(capacity);
        ops.into_iter().for_each(|op| run.apply(op));
        (0..run.owed.len()).for_each(|_| run.apply(Op::Answer));
        (0..=run.answers.len()).for_each(|_| run.apply(Op::Hear));
        prop_assert!(run.answers.is_empty());
    }
}

#[test]
fn what_nobody_can_answer_comes_back() {
    let (mut asker, mailboxes) = mailbox::<_, ()>(4);
    assert_eq!(asker.ask(1, "not opened yet"), Err("not opened yet"));
    let mailbox = mailboxes.open(&Core::new(1, 2)).unwrap();
    assert_eq!(asker.ask(2, "nobody there"), Err("nobody there"));
    assert_eq!(asker.answer(2), None);
    asker.ask(1, "anybody there").unwrap();
    drop(mailbox);
    assert_eq!(asker.ask(1, "still there"), Err("still there"));
    assert_eq!(asker.ask(0, "never opened"), Err("never opened"));
}

#[test]
fn a_mailbox_is_opened_once_by_each_core_of_one_group() {
    let (asker, mailboxes) = mailbox::<(), ()>(1);
    assert_eq!(asker.cores(), 0..0);
    let refused = |core: Core| mailboxes.open(&core).unwrap_err().to_string();
    let first = mailboxes.open(&Core::new(1, 3).in_group(2)).unwrap();
    assert_eq!(asker.cores(), 0..3);
    let again = "core 1 of group 2 has opened this mailbox before: make a mailbox for each stage \
                 that answers, and for each run";
    assert_eq!(refused(Core::new(1, 3).in_group(2)), again);
    let elsewhere = "core 0 of group 1 can't open this mailbox, which cores of group 2 have \
                     opened: make a mailbox for each stage that answers";
    assert_eq!(refused(Core::new(0, 1).in_group(1)), elsewhere);
    drop(first);
    assert_eq!(refused(Core::new(1, 3).in_group(2)), again);
    mailboxes.clone().open(&Core::new(0, 3).in_group(2)).unwrap();
}

#[test]
fn an_answer_that_nobody_asked_for_is_refused() {
    let (mut asker, mailboxes) = mailbox(4);
    let mut mailbox = mailboxes.open(&Core::new(0, 1)).unwrap();
    asker.ask(0, 1).unwrap();
    assert_eq!(mailbox.request(), Some(1));
    mailbox.answer(2);
    let refused = catch_unwind(AssertUnwindSafe(|| mailbox.answer(3))).unwrap_err();
    let text = "a mailbox takes one answer for each request, and no more";
    assert_eq!(refused.downcast_ref(), Some(&text));
    assert_eq!((asker.answer(0), asker.answer(0)), (Some(2), None));
}

#[test]
fn threads_answer_every_question_in_order() {
    const QUESTION_COUNT: u64 = if cfg!(debug_assertions) { 5_000 } else { 50_000 };
    let (mut asker, mailboxes) = mailbox::<u64, u64>(16);
    watched(|| {
        thread::scope(|scope| {
            for core in 0..2 {
                let mut mailbox = mailboxes.open(&Core::new(core, 2)).unwrap();
                scope.spawn(move || {
                    let mut answered_count = 0;
                    while answered_count < QUESTION_COUNT {
                        let Some(question) = mailbox.request() else {
                            thread::yield_now();
                            continue;
                        };
                        mailbox.answer(question * 2 + core as u64);
                        answered_count += 1;
                    }
                });
            }
            let (mut asked, mut heard) = ([0; 2], [0; 2]);
            while heard != [QUESTION_COUNT; 2] {
                for core in 0..2 {
                    while asked[core] < QUESTION_COUNT && asker.ask(core, asked[core]).is_ok() {
                        asked[core] += 1;
                    }
                    while let Some(answer) = asker.answer(core) {
                        assert_eq!(answer, heard[core] * 2 + core as u64);
                        heard[core] += 1;
                    }
                }
                thread::yield_now();
            }
        });
    });
}
