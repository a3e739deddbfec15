//! Clients' questions about single connections, which workers answer.
//!
//! Uses the configuration and the table in use. Nothing waits for a worker here: queries for a busy
//! worker are queued, and a worker that hangs only delays the queries for itself.

use super::Control;
use super::connections::{self, LIMIT_DEFAULT, Rows};
use super::lookup;
use super::publisher::InForce;
use crate::request::Flow;
use hotloop::engine::Asker;
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::balance::{Filter, Listing, Query, Reply};
use hotloop_balancer::classify::worker_of;
use hotloop_ops::Answerer;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How long a client waits for a worker without an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The maximum time between two turns that counts as waiting. In a longer pause control itself did
/// not run, which is no reason to give up on a worker.
const TURN_MAX: Duration = Duration::from_millis(100);

/// The open questions, and the clients that wait for their answers.
#[derive(Debug)]
pub struct Questions {
    asker: Asker<Query, Reply>,
    /// The workers' lanes.
    lanes: Vec<Lane>,
    open: BTreeMap<Number, Question>,
    next: Number,
    /// The last turn, and the waiting time up to then.
    turned: Option<Instant>,
    time: Duration,
}

/// Identifies a question.
type Number = u64;

/// The channel to a worker and back, which has room for one query.
#[derive(Debug, Default)]
struct Lane {
    /// The query that the worker is answering, and since when. Its question may be over.
    asked: Option<(Number, Duration)>,
    /// The queries that are queued, each since when.
    waiting: VecDeque<(Number, Query, Duration)>,
}

#[derive(Debug)]
struct Question {
    answerer: Answerer,
    subject: Subject,
}

#[derive(Debug)]
enum Subject {
    Flow(FlowKey),
    /// The connections found so far, and the number of workers that are still searching.
    Listing(Rows, usize),
}

impl Questions {
    /// Questions to `worker_count` workers, asked by `asker`.
    pub fn new(asker: Asker<Query, Reply>, worker_count: usize) -> Self {
        let lanes = (0..worker_count).map(|_| Lane::default()).collect();
        Self { asker, lanes, open: BTreeMap::new(), next: 0, turned: None, time: Duration::ZERO }
    }

    /// Asks the worker that owns a flow.
    fn look_up(&mut self, worker: usize, key: FlowKey, answerer: Answerer) {
        let number = self.open(answerer, Subject::Flow(key));
        self.lanes[worker].waiting.push_back((number, Query::Connection(key), self.time));
        self.ask_next(worker);
    }

    /// Asks all workers for their connections.
    fn list(&mut self, filter: &Filter, limit: usize, answerer: Answerer) {
        let listing = Subject::Listing(Rows::new(limit), self.lanes.len());
        let number = self.open(answerer, listing);
        for worker in 0..self.lanes.len() {
            let page = Query::Connections(Box::new(Listing::new(filter.clone(), limit)));
            self.lanes[worker].waiting.push_back((number, page, self.time));
            self.ask_next(worker);
        }
    }

    fn open(&mut self, answerer: Answerer, subject: Subject) -> Number {
        let number = self.next;
        self.next += 1;
        self.open.insert(number, Question { answerer, subject });
        number
    }

    /// Takes the workers' answers, and sends more queries: call this every few milliseconds.
    pub fn turn(&mut self, in_force: InForce<'_>, now: Instant) {
        let since = self.turned.replace(now).unwrap_or(now);
        self.time += now.saturating_duration_since(since).min(TURN_MAX);
        // After a client has gone away, workers continue, but get no further queries for it.
        self.open.retain(|_, question| question.answerer.is_awaited());
        for worker in 0..self.lanes.len() {
            if let Some(reply) = self.asker.answer(worker) {
                self.take(worker, reply, in_force);
            }
            self.ask_next(worker);
            self.give_up_late(worker);
        }
    }

    fn take(&mut self, worker: usize, reply: Reply, in_force: InForce<'_>) {
        let lane = &mut self.lanes[worker];
        let Some((number, _)) = lane.asked.take() else { return };
        let Some(Question { answerer, subject }) = self.open.remove(&number) else { return };
        match (subject, reply) {
            (Subject::Flow(key), Reply::Connection(connection)) => {
                answerer.send(Ok(lookup::answer(in_force, &key, worker, connection)));
            }
            (Subject::Listing(mut rows, left_count), Reply::Connections(mut page)) => {
                rows.add(worker, &page, in_force.table);
                let left_count = left_count - usize::from(page.is_over());
                if left_count == 0 {
                    return answerer.send_text(&rows.answer());
                }
                if !page.is_over() {
                    page.turn_page(rows.wanted());
                    lane.waiting.push_back((number, Query::Connections(page), self.time));
                }
                let subject = Subject::Listing(rows, left_count);
                self.open.insert(number, Question { answerer, subject });
            }
            // A worker's answer matches its query.
            (Subject::Flow(_) | Subject::Listing(..), _) => {}
        }
    }

    /// Sends the next query to a worker that has answered the last one.
    fn ask_next(&mut self, worker: usize) {
        let lane = &mut self.lanes[worker];
        while lane.asked.is_none()
            && let Some((number, query, _)) = lane.waiting.pop_front()
        {
            if !self.open.contains_key(&number) {
                continue;
            }
            match self.asker.ask(worker, query) {
                Ok(()) => lane.asked = Some((number, self.time)),
                Err(_) => refuse(&mut self.open, number, &format!("worker {worker} has ended")),
            }
        }
    }

    /// Refuses the questions that a worker has not answered in time.
    fn give_up_late(&mut self, worker: usize) {
        let lane = &self.lanes[worker];
        let waiting = lane.waiting.iter().map(|(number, _, since)| (*number, *since));
        for (number, since) in lane.asked.into_iter().chain(waiting) {
            if self.time - since > PATIENCE {
                let seconds = PATIENCE.as_secs();
                let why = format!("worker {worker} did not answer within {seconds} s");
                refuse(&mut self.open, number, &why);
            }
        }
    }
}

impl Control {
    /// The answer of `ctl connections`.
    pub(super) fn connections(
        &mut self,
        filter: Option<&str>,
        limit: Option<u64>,
    ) -> Result<hotloop_ops::Reply, String> {
        let filter = connections::parse_filter(filter.unwrap_or_default(), &self.publisher.table)?;
        let (answerer, reply) = hotloop_ops::Reply::later();
        self.questions.list(&filter, limit.unwrap_or(LIMIT_DEFAULT) as usize, answerer);
        Ok(reply)
    }

    /// The answer of `ctl lookup`.
    pub(super) fn lookup(&mut self, flow: &Flow) -> Result<hotloop_ops::Reply, String> {
        let key = lookup::parse_flow(flow)?;
        let (answerer, reply) = hotloop_ops::Reply::later();
        let worker =
            worker_of(&key, &self.publisher.table.settings.hashes, self.publisher.counts.len());
        self.questions.look_up(worker, key, answerer);
        Ok(reply)
    }
}

fn refuse(open: &mut BTreeMap<Number, Question>, number: Number, why: &str) {
    if let Some(question) = open.remove(&number) {
        question.answerer.send(Err(why.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use hotloop::engine::{Deployment, Mailbox, mailbox};
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
            let deployment = Deployment::run_to_completion(2);
            let (asker, mailboxes) = mailbox(deployment, 0, 1);
            let workers = (0..2).map(|it| mailboxes.take(&Core::new(it, 2)).unwrap()).collect();
            let folder = tempfile::tempdir().unwrap();
            let socket = Socket::bind(&folder.path().join("lb.sock")).unwrap();
            let text = include_str!("../../tests/bench/lb.toml");
            let config = Config::parse("lb.toml", text).unwrap();
            let table =
                Builder::new(&config.services).build(&config.spec(), &Standing::default()).unwrap();
            let (questions, now) = (Questions::new(asker, 2), Instant::now());
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
            self.socket.serve(&mut |_: &Request| unreachable!("nobody asks"));
            self.questions.turn(InForce { config: &self.config, table: &self.table }, self.now);
            self.socket.serve(&mut |_: &Request| unreachable!("nobody asks"));
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
        let clients =
            [lab.client(Some(0)), lab.client(Some(1)), lab.client(None), lab.client(Some(1))];
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
        assert!(lab.workers[0].request().is_none(), "it is asked for the next page");
    }
}
