//! Clients' questions about the cores' state, which the cores answer: control's part of a listing.
//!
//! Nothing waits for a core here: questions for a busy core are queued, and a core that hangs only
//! delays the questions for itself.

use crate::request::{Answerer, Reply};
use hotloop_engine::{Asker, ListPage};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How long a client waits for a worker without an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The maximum time between two turns that counts as waiting. In a longer pause control itself did
/// not run, which is no reason to give up on a worker.
const TURN_MAX: Duration = Duration::from_millis(100);

/// Lists the state of all cores, and answers clients with it: a field of the program's
/// [`Steer`](crate::Steer).
///
/// The stage that has the state owns a [`Lister`](hotloop_engine::Lister), which finds the rows. The
/// answer is `{"matching": 2, "flows": [..]}`, with the rows of all cores under the listing's name.
/// A worker that doesn't answer within 10 s makes it an error. Pauses of the control thread don't
/// count, and a client that goes away ends its listing.
///
/// With `Table::scan`, a core passes 8 flows in a turn, or looks through 240 places: about 0.1 µs, and
/// up to 0.6 µs in a large table with few flows. A table with a million flows takes 125,000 turns,
/// which are 0.8 s if each has 64 packets of 100 ns, and an empty one of that capacity 4,902 turns,
/// or 0.03 s. Control adds one of its turns, 5 ms, for each 4,096 turns and for each 256 rows.
///
/// A program that counts packets by their lengths, and its answer to `ctl lengths`:
///
/// ```
/// use hotloop_engine::{Control, Lister, mailbox};
/// use hotloop_ops::{Listing, Reply, Request, Steer};
/// use hotloop_stage::{Carries, Core, Cx, NoDrops, Stage, Verdict};
/// use serde_json::json;
///
/// /// Counts packets by their lengths.
/// struct Lengths {
///     counts: [u64; 2048],
///     /// `ctl lengths` has no filter, a position in the counts, and rows of lengths with counts.
///     lister: Lister<(), usize, (usize, u64)>,
/// }
///
/// impl<P: Carries> Stage<P> for Lengths {
///     type Out = P;
///     type Drop = NoDrops;
///
///     fn packet(&mut self, _: &mut Cx<'_, NoDrops>, packet: P) -> Verdict<P> {
///         self.counts[packet.bytes().len().min(2047)] += 1;
///         Ok(packet)
///     }
///
///     fn tick(&mut self, _: &mut Cx<'_, NoDrops>) {
///         let counts = &self.counts;
///         self.lister.tick(|_, from, budget, rows| {
///             let end = counts.len().min(from + budget);
///             (from..end).filter(|it| counts[*it] > 0).for_each(|it| rows.push((it, counts[it])));
///             (end < counts.len()).then_some(end)
///         });
///     }
/// }
///
/// struct Operator {
///     lengths: Listing<(), usize, (usize, u64)>,
/// }
///
/// impl Steer for Operator {
///     fn answer(&mut self, _: &Control<'_>, request: &Request) -> Result<Reply, String> {
///         match request.command.as_str() {
///             "lengths" => Ok(self.lengths.list((), 100)),
///             _ => request.unknown(),
///         }
///     }
///
///     fn turn(&mut self, _: &Control<'_>) {
///         self.lengths.turn(|core, (length, count)| {
///             json!({ "core": core, "length": length, "packets": count })
///         });
///     }
/// }
///
/// let (asker, mailboxes) = mailbox(1);
/// let factory = |core: &Core| {
///     let lister = Lister::new(mailboxes.open(core)?);
///     Ok::<_, hotloop_stage::Error>(Lengths { counts: [0; 2048], lister })
/// };
/// let operator = Operator { lengths: Listing::new("lengths", asker) };
/// # factory(&Core::new(0, 1))?;
/// # Ok::<(), hotloop_stage::Error>(())
/// ```
#[derive(Debug)]
pub struct Listing<Q, C, R> {
    name: &'static str,
    asker: Asker<Page<Q, C, R>, Page<Q, C, R>>,
    lanes: Vec<Lane<Q, C, R>>,
    open: BTreeMap<Number, Question>,
    next: Number,
    /// The last turn, and the waiting time up to then.
    turned: Option<Instant>,
    time: Duration,
}

type Page<Q, C, R> = Box<ListPage<Q, C, R>>;

/// Identifies a question.
type Number = u64;

/// The channel to a worker and back, which has one query at a time.
#[derive(Debug)]
struct Lane<Q, C, R> {
    /// The question that the worker is answering, and since when. It may be over.
    asked: Option<(Number, Duration)>,
    /// The pages that are queued, each since when.
    waiting: VecDeque<(Number, Page<Q, C, R>, Duration)>,
}

/// A client's question.
#[derive(Debug)]
struct Question {
    answerer: Answerer,
    /// Whether one row is the whole answer.
    is_single: bool,
    rows: Rows,
    /// Number of workers that are still searching.
    left_count: usize,
}

impl<Q, C, R> Listing<Q, C, R>
where
    Q: Clone + Send,
    C: Default + Send,
    R: Send,
{
    /// A listing with this name for its rows in answers. `asker` is control's end of the
    /// [`mailbox()`](hotloop_engine::mailbox()) that the stage's [`Lister`](hotloop_engine::Lister)s
    /// take queries from.
    #[must_use]
    pub const fn new(name: &'static str, asker: Asker<Page<Q, C, R>, Page<Q, C, R>>) -> Self {
        Self {
            name,
            asker,
            lanes: Vec::new(),
            open: BTreeMap::new(),
            next: 0,
            turned: None,
            time: Duration::ZERO,
        }
    }

    /// Lists the rows of all cores that match the query: up to `limit` of them, and the number of
    /// all. The reply comes in a later [`turn`](Self::turn).
    pub fn list(&mut self, query: Q, limit: usize) -> Reply {
        let cores = self.asker.cores();
        if cores.is_empty() {
            return Reply::Now(Err("no worker has started yet: ask again".to_owned()));
        }
        let (number, reply) = self.open(limit, cores.len(), false);
        for core in cores {
            self.queue(core, number, Box::new(ListPage::new(query.clone(), limit)));
            self.ask_next(core);
        }
        reply
    }

    /// Asks one core, such as the owner of a flow, for the first row that matches the query. The
    /// answer is this row alone, or `null` if there is none, in a later [`turn`](Self::turn).
    pub fn ask_core(&mut self, core: usize, query: Q) -> Reply {
        if !self.asker.cores().contains(&core) {
            return Reply::Now(Err(format!("there is no worker {core}")));
        }
        let (number, reply) = self.open(1, 1, true);
        self.queue(core, number, Box::new(ListPage::new(query, 1)));
        self.ask_next(core);
        reply
    }

    fn open(&mut self, limit: usize, left_count: usize, is_single: bool) -> (Number, Reply) {
        let lane = || Lane { asked: None, waiting: VecDeque::new() };
        self.lanes.resize_with(self.asker.cores().len(), lane);
        let (answerer, reply) = Reply::later();
        let question = Question { answerer, is_single, rows: Rows::new(limit), left_count };
        let number = self.next;
        self.next += 1;
        self.open.insert(number, question);
        (number, reply)
    }

    fn queue(&mut self, core: usize, number: Number, page: Page<Q, C, R>) {
        self.lanes[core].waiting.push_back((number, page, self.time));
    }

    /// Takes the cores' answers, and sends more queries: call this in [`Steer::turn`]. `row` makes
    /// the JSON of a row of the core with this number.
    ///
    /// [`Steer::turn`]: crate::Steer::turn
    pub fn turn(&mut self, row: impl FnMut(usize, &R) -> Value) {
        self.turn_at(Instant::now(), row);
    }

    fn turn_at(&mut self, now: Instant, mut row: impl FnMut(usize, &R) -> Value) {
        let since = self.turned.replace(now).unwrap_or(now);
        self.time += now.saturating_duration_since(since).min(TURN_MAX);
        // After a client has gone away, workers continue, but get no further queries for it.
        self.open.retain(|_, question| question.answerer.is_awaited());
        for core in 0..self.lanes.len() {
            if let Some(page) = self.asker.answer(core) {
                self.take(core, page, &mut row);
            }
            self.lanes[core].waiting.retain(|(number, ..)| self.open.contains_key(number));
            self.ask_next(core);
            self.give_up_late(core);
        }
    }

    fn take(
        &mut self,
        core: usize,
        mut page: Page<Q, C, R>,
        row: &mut impl FnMut(usize, &R) -> Value,
    ) {
        let Some((number, _)) = self.lanes[core].asked.take() else { return };
        let Some(mut question) = self.open.remove(&number) else { return };
        question.rows.add(&page, |found| row(core, found));
        question.left_count -= usize::from(page.is_over());
        if question.is_complete() {
            return question.answer(self.name);
        }
        if !page.is_over() {
            page.turn_page(question.rows.wanted());
            self.queue(core, number, page);
        }
        self.open.insert(number, question);
    }

    /// Sends the next query to a worker that has answered the last one.
    fn ask_next(&mut self, core: usize) {
        let lane = &mut self.lanes[core];
        while lane.asked.is_none()
            && let Some((number, page, _)) = lane.waiting.pop_front()
        {
            match self.asker.ask(core, page) {
                Ok(()) => lane.asked = Some((number, self.time)),
                Err(_) => refuse(&mut self.open, number, format!("worker {core} has ended")),
            }
        }
    }

    /// Refuses the questions that a worker has not answered in time.
    fn give_up_late(&mut self, core: usize) {
        let lane = &self.lanes[core];
        let waiting = lane.waiting.iter().map(|(number, _, since)| (*number, *since));
        for (number, since) in lane.asked.into_iter().chain(waiting) {
            if self.time - since > PATIENCE {
                let seconds = PATIENCE.as_secs();
                let why = format!("worker {core} did not answer within {seconds} s");
                refuse(&mut self.open, number, why);
            }
        }
    }
}

fn refuse(open: &mut BTreeMap<Number, Question>, number: Number, why: String) {
    if let Some(question) = open.remove(&number) {
        question.answerer.send(Err(why));
    }
}

impl Question {
    const fn is_complete(&self) -> bool {
        self.left_count == 0 || self.is_single && self.rows.count == 1
    }

    fn answer(self, name: &str) {
        let Rows { text, matching_count, .. } = self.rows;
        self.answerer.send_text(&match self.is_single {
            true if text.is_empty() => "null".to_owned(),
            true => text,
            false => format!(r#"{{"matching":{matching_count},"{name}":[{text}]}}"#),
        });
    }
}

/// The rows found so far, as text. As JSON values, the largest listing would take many times the
/// memory, and converting it would block the control thread for too long.
#[derive(Debug)]
struct Rows {
    text: String,
    count: usize,
    limit: usize,
    matching_count: u64,
}

impl Rows {
    /// No rows yet, of up to `limit`.
    const fn new(limit: usize) -> Self {
        Self { text: String::new(), count: 0, limit, matching_count: 0 }
    }

    /// Number of rows that may still be added.
    const fn wanted(&self) -> usize {
        self.limit - self.count
    }

    /// Adds a worker's findings, up to the limit.
    fn add<Q, C, R>(&mut self, page: &ListPage<Q, C, R>, mut row: impl FnMut(&R) -> Value) {
        self.matching_count += page.matching_count();
        for found in page.rows().iter().take(self.wanted()) {
            let comma = if self.count > 0 { "," } else { "" };
            self.text += comma;
            self.text += &row(found).to_string();
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests;
