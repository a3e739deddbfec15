//! Questions to two workers that the test plays, by clients of a socket.

use super::*;
use crate::{Request, Socket};
use hotloop_engine::{Lister, mailbox};
use hotloop_stage::Core;
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

/// Two workers, whose part the test plays, and clients. Worker 0 has the numbers from 0 to 1,999,
/// worker 1 those from 2,000 to 3,999.
struct Lab {
    listing: Listing<Multiples, usize, usize>,
    workers: Vec<Option<Lister<Multiples, usize, usize>>>,
    socket: Socket,
    now: Instant,
    // Dropped last.
    _folder: tempfile::TempDir,
}

/// The query: multiples of this number.
type Multiples = usize;

const NUMBERS_EACH: usize = 2_000;

impl Lab {
    fn new() -> Self {
        let (asker, mailboxes) = mailbox(1);
        let open = |core| Lister::new(mailboxes.open(&Core::new(core, 2)).unwrap());
        let workers = (0..2).map(|core| Some(open(core))).collect();
        let folder = tempfile::tempdir().unwrap();
        let socket = Socket::bind(&folder.path().join("nf.sock")).unwrap();
        let (listing, now) = (Listing::new("numbers", asker), Instant::now());
        Self { listing, workers, socket, now, _folder: folder }
    }

    /// A client that asks all workers, or this one.
    fn client(&mut self, worker: Option<usize>, factor: Multiples, limit: usize) -> UnixStream {
        let mut client = UnixStream::connect(self.socket.path()).unwrap();
        client.set_nonblocking(true).unwrap();
        client.write_all(b"{\"command\": \"ask\"}\n").unwrap();
        let Self { listing, socket, .. } = self;
        socket.serve(&mut |_: &Request| match worker {
            Some(worker) => listing.ask_core(worker, factor),
            None => listing.list(factor, limit),
        });
        client
    }

    fn turn(&mut self) {
        self.socket.serve(&mut |_: &Request| unreachable!("no client sends a request"));
        self.listing.turn_at(self.now, |worker, number| json!([worker, number]));
        self.socket.serve(&mut |_: &Request| unreachable!("no client sends a request"));
    }

    /// Lets time pass, in turns.
    fn pass(&mut self, time: Duration) {
        for _ in 0..100 {
            self.now += time / 100;
            self.turn();
        }
    }

    /// Finishes the page that a worker was asked for. Returns false if there was no query.
    fn answer_page(&mut self, worker: usize) -> bool {
        let lister = self.workers[worker].as_mut().unwrap();
        let end = (worker + 1) * NUMBERS_EACH;
        let mut step_count = 0;
        while step_count == 0 || lister.has_work() {
            let before = step_count;
            lister.tick(|factor, offset, budget, rows| {
                let from = worker * NUMBERS_EACH + offset;
                let to = end.min(from + budget);
                (from..to).filter(|it| it % factor == 0).for_each(|it| rows.push(it));
                step_count += 1;
                (to < end).then_some(offset + budget)
            });
            if step_count == before {
                return false;
            }
        }
        true
    }
}

/// A client's answer; empty if there is none yet.
fn got(mut client: &UnixStream) -> String {
    let mut bytes = vec![0; 256 << 10];
    match client.read(&mut bytes) {
        Ok(count) => String::from_utf8(bytes[..count].to_vec()).unwrap(),
        Err(error) if error.kind() == ErrorKind::WouldBlock => String::new(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_worker_that_answers_nothing_holds_up_those_alone_that_ask_it() {
    let mut lab = Lab::new();
    let clients = [Some(0), Some(1), None, Some(1)].map(|worker| lab.client(worker, 1, 1000));
    // Each worker has one query; the others are queued.
    assert!(lab.answer_page(1));
    lab.turn();
    assert_eq!(got(&clients[1]), "{\"ok\":[1,2000]}\n");
    // Control does not run for an hour; only a moment of that counts.
    lab.now += Duration::from_secs(3600);
    lab.turn();
    lab.pass(PATIENCE - TURN_MAX);
    // The page does not end the walk: the rest is queued last.
    assert!(lab.answer_page(1));
    lab.turn();
    assert!(lab.answer_page(1));
    lab.turn();
    assert_eq!(got(&clients[3]), "{\"ok\":[1,2000]}\n");
    assert_eq!([got(&clients[0]), got(&clients[2])], [const { String::new() }; 2]);
    lab.pass(Duration::from_millis(1));
    for client in [&clients[0], &clients[2]] {
        assert!(got(client).contains("worker 0 did not answer within 10 s"));
    }
    assert!(lab.listing.open.is_empty());
    // The late answer is dropped, and the worker gets queries again.
    assert!(lab.answer_page(0));
    let next = lab.client(Some(0), 7, 1);
    lab.turn();
    assert!(lab.answer_page(0));
    lab.turn();
    assert_eq!(got(&next), "{\"ok\":[0,0]}\n");
}

#[test]
fn a_client_that_goes_away_ends_its_listing() {
    let mut lab = Lab::new();
    let clients = [lab.client(None, 1, 1000), lab.client(None, 1, 1000)];
    assert!(lab.listing.lanes.iter().all(|lane| lane.waiting.len() == 1));
    drop(clients);
    lab.turn();
    assert!(lab.listing.open.is_empty());
    assert!(lab.listing.lanes.iter().all(|lane| lane.waiting.is_empty()));
    assert!(lab.answer_page(0));
    lab.turn();
    assert!(!lab.answer_page(0), "a page was requested for a client that has gone");
}

#[test]
fn rows_of_all_workers_come_in_pages_up_to_the_limit_and_all_matches_are_counted() {
    let mut lab = Lab::new();
    for (factor, limit) in [(1, 10_000), (1, 1_500), (1, 0), (3, 10_000), (500, 3), (5_000, 3)] {
        let client = lab.client(None, factor, limit);
        let (mut answer, mut page_count) = (String::new(), 0);
        while answer.is_empty() {
            page_count += (0..2).filter(|worker| lab.answer_page(*worker)).count();
            lab.turn();
            // The socket sends a long answer in parts.
            answer = got(&client);
        }
        while !answer.ends_with('\n') {
            lab.turn();
            answer += &got(&client);
        }
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let numbers = (0..2 * NUMBERS_EACH).step_by(factor);
        assert_eq!(answer["ok"]["matching"], numbers.len());
        let rows = answer["ok"]["numbers"].as_array().unwrap();
        assert_eq!(rows.len(), numbers.len().min(limit));
        let mut listed: Vec<_> = rows.iter().map(|row| row[1].as_u64().unwrap()).collect();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed.len(), rows.len(), "a row is listed twice");
        for row in rows {
            let (worker, number) = (row[0].as_u64().unwrap(), row[1].as_u64().unwrap());
            assert_eq!((number as usize % factor, number / NUMBERS_EACH as u64), (0, worker));
        }
        assert_eq!(page_count > 2, rows.len() > 1_000, "{factor} {limit}: {page_count} pages");
    }
}

#[test]
fn the_answer_of_one_worker_is_a_row_or_null() {
    let mut lab = Lab::new();
    for (worker, factor, answer) in [(0, 7, "[0,0]"), (1, 7, "[1,2002]"), (1, 4_001, "null")] {
        let client = lab.client(Some(worker), factor, 1);
        assert!(!lab.answer_page(1 - worker));
        assert!(lab.answer_page(worker));
        lab.turn();
        assert_eq!(got(&client), format!("{{\"ok\":{answer}}}\n"));
    }
    let client = lab.client(Some(2), 1, 1);
    assert_eq!(got(&client), "{\"error\":\"there is no worker 2\"}\n");
}

#[test]
fn questions_to_a_worker_that_has_ended_are_refused() {
    let mut lab = Lab::new();
    lab.workers[1] = None;
    let clients = [None, Some(1), Some(0)].map(|worker| lab.client(worker, 1, 1));
    lab.turn();
    // The listing was the first for worker 0, too.
    assert!(lab.answer_page(0));
    lab.turn();
    assert!(lab.answer_page(0));
    lab.turn();
    for client in &clients[..2] {
        assert_eq!(got(client), "{\"error\":\"worker 1 has ended\"}\n");
    }
    assert_eq!(got(&clients[2]), "{\"ok\":[0,0]}\n");
    assert!(lab.listing.open.is_empty());
}

#[test]
fn before_workers_start_clients_are_asked_to_come_again() {
    let (asker, mailboxes) = mailbox(1);
    let mut listing = Listing::<(), usize, usize>::new("numbers", asker);
    let Reply::Now(Err(why)) = listing.list((), 1) else {
        panic!("there is no worker to wait for")
    };
    assert!(why.contains("ask again"), "{why}");
    drop(mailboxes);
}
