//! Questions to two workers that the test plays, by clients of a socket.

use super::*;
use crate::config::Config;
use hotloop::engine::{Mailbox, mailbox};
use hotloop::stage::Core;
use hotloop_balancer::services::{Builder, ServiceTable, Standing};
use hotloop_ops::{Request, Socket};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

/// Two workers, whose part the test plays, and clients.
struct Lab {
    questions: Questions,
    workers: Vec<Mailbox<Query, Reply>>,
    socket: Socket,
    config: Config,
    table: ServiceTable,
    now: Instant,
    // Dropped last.
    _folder: tempfile::TempDir,
}

fn key() -> FlowKey {
    let (client, vip) = ("198.51.100.7:4000", "203.0.113.10:80");
    FlowKey::new(client.parse().unwrap(), vip.parse().unwrap(), 6).unwrap()
}

impl Lab {
    fn new() -> Self {
        let (asker, mailboxes) = mailbox(1);
        let workers = (0..2).map(|core| mailboxes.open(&Core::new(core, 2)).unwrap()).collect();
        let folder = tempfile::tempdir().unwrap();
        let socket = Socket::bind(&folder.path().join("lb.sock")).unwrap();
        let text = include_str!("../../../tests/bench/lb.toml");
        let config = Config::parse("lb.toml", text).unwrap();
        let table =
            Builder::new(&config.services).build(&config.spec(), &Standing::default()).unwrap();
        let (questions, now) = (Questions::new(asker), Instant::now());
        Self { questions, workers, socket, config, table, now, _folder: folder }
    }

    /// A client that asks for connections, or looks up a flow at this worker.
    fn client(&mut self, worker: Option<usize>) -> UnixStream {
        let mut client = UnixStream::connect(self.socket.path()).unwrap();
        client.set_nonblocking(true).unwrap();
        client.write_all(b"{\"command\": \"ask\"}\n").unwrap();
        let Self { questions, socket, .. } = self;
        socket.serve(&mut |_: &Request| {
            let (answerer, reply) = hotloop_ops::Reply::later();
            match worker {
                Some(worker) => questions.look_up(worker, key(), answerer),
                None => questions.list(&Filter::default(), 10, answerer),
            }
            reply
        });
        client
    }

    fn turn(&mut self) {
        self.socket.serve(&mut |_: &Request| unreachable!("no client sends a request"));
        self.questions.turn(InForce { config: &self.config, table: &self.table }, self.now);
        self.socket.serve(&mut |_: &Request| unreachable!("no client sends a request"));
    }

    /// Lets time pass, in turns.
    fn pass(&mut self, time: Duration) {
        for _ in 0..100 {
            self.now += time / 100;
            self.turn();
        }
    }

    /// Has a worker answer a lookup without a connection.
    fn answer_lookup(&mut self, worker: usize) {
        let Some(Query::Connection(_)) = self.workers[worker].request() else {
            panic!("worker {worker} is asked nothing")
        };
        self.workers[worker].answer(Reply::Connection(None));
    }
}

/// A client's answer; empty if there is none yet.
fn got(mut client: &UnixStream) -> String {
    let mut bytes = [0; 1024];
    match client.read(&mut bytes) {
        Ok(count) => String::from_utf8(bytes[..count].to_vec()).unwrap(),
        Err(error) if error.kind() == ErrorKind::WouldBlock => String::new(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_worker_that_answers_nothing_holds_up_those_alone_that_ask_it() {
    let mut lab = Lab::new();
    let clients = [lab.client(Some(0)), lab.client(Some(1)), lab.client(None), lab.client(Some(1))];
    // Each worker has one query; the others are queued.
    lab.answer_lookup(1);
    lab.turn();
    assert!(got(&clients[1]).contains("\"worker\":1"));
    let Some(Query::Connections(page)) = lab.workers[1].request() else { panic!("no page") };
    // Control does not run for an hour; only a moment of that counts.
    lab.now += Duration::from_secs(3600);
    lab.turn();
    lab.pass(PATIENCE - TURN_MAX);
    // The page is not over: the rest is queued last.
    lab.workers[1].answer(Reply::Connections(page));
    lab.turn();
    lab.answer_lookup(1);
    lab.turn();
    assert!(got(&clients[3]).contains("\"worker\":1"));
    assert_eq!([got(&clients[0]), got(&clients[2])], [const { String::new() }; 2]);
    lab.pass(Duration::from_millis(1));
    for client in [&clients[0], &clients[2]] {
        assert!(got(client).contains("worker 0 did not answer within 10 s"));
    }
    assert!(lab.questions.open.is_empty());
    // The late answer is dropped, and the worker gets queries again.
    lab.answer_lookup(0);
    let next = lab.client(Some(0));
    lab.turn();
    lab.answer_lookup(0);
    lab.turn();
    assert!(got(&next).contains("\"worker\":0"));
}

#[test]
fn a_client_that_goes_away_ends_its_listing() {
    let mut lab = Lab::new();
    let client = lab.client(None);
    let Some(Query::Connections(page)) = lab.workers[0].request() else { panic!("no page") };
    drop(client);
    lab.turn();
    assert!(lab.questions.open.is_empty());
    lab.workers[0].answer(Reply::Connections(page));
    lab.turn();
    assert!(lab.workers[0].request().is_none(), "a page was requested for a client that has gone");
}
