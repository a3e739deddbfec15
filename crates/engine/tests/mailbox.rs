//! Any sequence of requests and answers behaves like two queues; threads get every answer.

use crate::common::watched;
use hotloop_engine::{Asker, Mailbox, mailbox};
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
        let (asker, mailboxes) =
            mailbox(hotloop_engine::Deployment::run_to_completion(1), 0, capacity);
        let mailbox = mailboxes.take(&hotloop_stage::Core::new(0, 1)).unwrap();
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
    let (mut asker, mailboxes) =
        mailbox::<_, ()>(hotloop_engine::Deployment::run_to_completion(2), 0, 4);
    assert_eq!(asker.ask(2, "nobody there"), Err("nobody there"));
    assert_eq!(asker.answer(2), None);
    let mailbox = mailboxes.take(&hotloop_stage::Core::new(1, 2));
    assert!(
        mailbox.is_some()
            && mailboxes.take(&hotloop_stage::Core::new(1, 2)).is_none()
            && mailboxes.take(&hotloop_stage::Core::new(2, 3)).is_none()
    );
    asker.ask(1, "anybody there").unwrap();
    drop(mailbox);
    assert_eq!(asker.ask(1, "still there"), Err("still there"));
    asker.ask(0, "not taken yet").unwrap();
    drop(mailboxes);
    assert_eq!(asker.ask(0, "never taken"), Err("never taken"));
}

#[test]
fn an_answer_that_nobody_asked_for_is_refused() {
    let (mut asker, mailboxes) = mailbox(hotloop_engine::Deployment::run_to_completion(1), 0, 4);
    let mut mailbox = mailboxes.take(&hotloop_stage::Core::new(0, 1)).unwrap();
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
    let (mut asker, mailboxes) =
        mailbox::<u64, u64>(hotloop_engine::Deployment::run_to_completion(2), 0, 16);
    watched(|| {
        thread::scope(|scope| {
            for core in 0..2 {
                let mut mailbox =
                    mailboxes.take(&hotloop_stage::Core::new(core, core + 1)).unwrap();
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
