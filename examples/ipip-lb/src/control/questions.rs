//! Clients' questions about single connections, which workers answer: listings with their filter, and
//! [lookups](super::lookup).
//!
//! Uses the configuration and the table in use. Nothing waits for a worker here: queries for a busy
//! worker are queued, and a worker that hangs only delays the queries for itself.

use super::Control;
use super::lookup;
use super::publisher::InForce;
use crate::answer;
use crate::request::Flow;
use hotloop::engine::Asker;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::protocol;
use hotloop_balancer::balance::{Filter, Listing, Query, Reply, TargetSet};
use hotloop_balancer::classify::worker_of;
use hotloop_balancer::connection::Connection;
use hotloop_balancer::services::{Found, ServiceTable, TargetId};
use hotloop_ops::Answerer;
use serde_json::json;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How long a client waits for a worker without an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The maximum time between two turns that counts as waiting. In a longer pause control itself did
/// not run, which is no reason to give up on a worker.
const TURN_MAX: Duration = Duration::from_millis(100);

/// Number of connections to list by default.
const LIMIT_DEFAULT: u64 = 100;

/// The open questions, and the clients that wait for their answers.
#[derive(Debug)]
pub struct Questions {
    asker: Asker<Query, Reply>,
    /// The workers' lanes, once the workers have started.
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
    /// Questions to the workers, asked by `asker`.
    pub const fn new(asker: Asker<Query, Reply>) -> Self {
        Self {
            asker,
            lanes: Vec::new(),
            open: BTreeMap::new(),
            next: 0,
            turned: None,
            time: Duration::ZERO,
        }
    }

    /// Asks the worker that owns a flow.
    fn look_up(&mut self, worker: usize, key: FlowKey, answerer: Answerer) {
        let number = self.open(answerer, Subject::Flow(key));
        self.lanes[worker].waiting.push_back((number, Query::Connection(key), self.time));
        self.ask_next(worker);
    }

    /// Asks all workers for their connections.
    fn list(&mut self, filter: &Filter, limit: usize, answerer: Answerer) {
        let listing = Subject::Listing(Rows::new(limit), self.asker.cores().len());
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
        self.lanes.resize_with(self.asker.cores().len(), Lane::default);
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
                let answer = lookup::answer(in_force, &key, worker, connection);
                answerer.send(Ok(json!(answer)));
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
        let filter = parse_filter(filter.unwrap_or_default(), &self.publisher.table)?;
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

/// The connections found so far, as text. As JSON values, the largest listing would take many times
/// the memory, and converting it would block the control thread for too long.
#[derive(Debug)]
struct Rows {
    text: String,
    count: usize,
    limit: usize,
    matching_count: u64,
}

impl Rows {
    /// An empty listing for up to `limit` connections.
    fn new(limit: usize) -> Self {
        Self { text: String::new(), count: 0, limit, matching_count: 0 }
    }

    /// Number of connections that may still be added.
    const fn wanted(&self) -> usize {
        self.limit - self.count
    }

    /// Adds a worker's findings, up to the limit.
    fn add(&mut self, worker: usize, page: &Listing, table: &ServiceTable) {
        self.matching_count += page.matching_count;
        for (key, connection) in page.found.iter().take(self.wanted()) {
            let comma = if self.count > 0 { "," } else { "" };
            self.text += comma;
            self.text += &json!(row(table, worker, key, connection)).to_string();
            self.count += 1;
        }
    }

    /// The answer, as text of JSON.
    fn answer(&self) -> String {
        format!(r#"{{"matching":{},"connections":[{}]}}"#, self.matching_count, self.text)
    }
}

fn row(
    table: &ServiceTable,
    worker: usize,
    key: &FlowKey,
    connection: &Connection,
) -> answer::Connection {
    let (service, backend) = named(table, connection.target);
    answer::Connection {
        protocol: protocol_name(key.protocol()),
        client: SocketAddr::new(key.source(), key.source_port()),
        vip: SocketAddr::new(key.destination(), key.destination_port()),
        worker,
        state: state_name(connection),
        service: service.map(str::to_owned),
        backend,
    }
}

/// The service and the backend of a target; `None` for each if the target is gone.
pub(super) fn named(table: &ServiceTable, id: TargetId) -> (Option<&str>, Option<IpAddr>) {
    match table.target(id) {
        Found::Active(target) => {
            let service = target.service.map(|index| &table.all()[index as usize]);
            (service.map(|service| &*service.name), Some(target.address()))
        }
        Found::Removed | Found::Flushed => (None, None),
    }
}

/// The word for a connection's state.
pub(super) fn state_name(connection: &Connection) -> String {
    format!("{:?}", connection.state()).to_lowercase()
}

/// A protocol's name, or its number.
fn protocol_name(number: u8) -> String {
    match number {
        protocol::TCP => "tcp".to_owned(),
        protocol::UDP => "udp".to_owned(),
        protocol::ICMP => "icmp".to_owned(),
        protocol::ICMPV6 => "icmpv6".to_owned(),
        number => number.to_string(),
    }
}

/// A protocol's number, by its name or number.
pub(super) fn protocol_number(text: &str) -> Result<u8, String> {
    match text {
        "tcp" => Ok(protocol::TCP),
        "udp" => Ok(protocol::UDP),
        "icmp" => Ok(protocol::ICMP),
        "icmpv6" => Ok(protocol::ICMPV6),
        text => text.parse().map_err(|_| {
            format!("{text:?} is not a protocol; write tcp, udp, icmp, icmpv6 or a number")
        }),
    }
}

/// Parses a filter such as `client=198.51.100.0/24,port=80`.
fn parse_filter(text: &str, table: &ServiceTable) -> Result<Filter, String> {
    let mut filter = Filter::default();
    let mut targets: Option<HashSet<TargetId>> = None;
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let wrong = || {
            format!(
                "{part:?} is no filter; write client=PREFIX, vip=PREFIX, port=N, protocol=NAME, \
                 service=NAME or backend=ADDRESS, with commas between"
            )
        };
        let (key, value) = part.split_once('=').ok_or_else(wrong)?;
        match key {
            "client" => filter.client = Some(value.parse().map_err(|_| wrong())?),
            "vip" => filter.vip = Some(value.parse().map_err(|_| wrong())?),
            "port" => filter.port = Some(value.parse().map_err(|_| wrong())?),
            "protocol" => filter.protocol = Some(protocol_number(value)?),
            "service" | "backend" => {
                let found = targets_of(key, value, table)?;
                targets = Some(match targets {
                    Some(others) => others.intersection(&found).copied().collect(),
                    None => found,
                });
            }
            _ => return Err(wrong()),
        }
    }
    filter.targets = targets.map(TargetSet::new);
    Ok(filter)
}

/// The targets of a service, or of a backend in all services.
fn targets_of(key: &str, value: &str, table: &ServiceTable) -> Result<HashSet<TargetId>, String> {
    let address: Option<IpAddr> = value.parse().ok();
    let fits = |service: u32, of: IpAddr| match key {
        "service" => &*table.all()[service as usize].name == value,
        _ => Some(of) == address,
    };
    let targets = table.used_targets();
    let targets = targets.filter(|(service, _, target)| fits(*service, target.address()));
    let targets: HashSet<_> = targets.map(|(_, id, _)| id).collect();
    if targets.is_empty() {
        return Err(format!("there is no {key} {value:?} with backends; ctl {key}s lists them"));
    }
    Ok(targets)
}

#[cfg(test)]
mod tests;
