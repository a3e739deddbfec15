//! A listing of two running cores' state.

use crate::numbers::{Nothing, Number};
use crate::operate::{Count, with};
use hotloop_engine::{Chain, Control, Deployment, Engine, Lister, Shard, Waited, mailbox, source};
use hotloop_ops::{Listing, Reply, Request, Socket, Steer, ask};
use hotloop_stage::{Cx, Error, NoDrops, Stage, Verdict};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// More residues than a page has rows.
const RESIDUES: usize = 1_000;

/// Remembers the residues of numbers.
struct Residues {
    seen: [bool; RESIDUES],
    lister: Lister<Query, usize, usize>,
}

/// The residues from this one on.
#[derive(Clone)]
struct Query {
    first: usize,
}

impl Stage<Number> for Residues {
    type Out = Number;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, number: Number) -> Verdict<Number> {
        self.seen[number.0 as usize % RESIDUES] = true;
        Ok(number)
    }

    fn tick(&mut self, _: &mut Cx<'_, NoDrops>) {
        let seen = &self.seen;
        self.lister.tick(|query, from, budget, rows| {
            let end = RESIDUES.min(from + budget);
            (from..end).filter(|it| *it >= query.first && seen[*it]).for_each(|it| rows.push(it));
            (end < RESIDUES).then_some(end)
        });
    }
}

struct Operator(Listing<Query, usize, usize>);

impl Steer for Operator {
    fn answer(&mut self, _: &Control<'_>, request: &Request) -> Result<Reply, String> {
        let arguments = &request.arguments;
        let number = |name: &str| arguments[name].as_u64().map(|number| number as usize);
        let query = Query { first: number("first").unwrap_or(0) };
        Ok(match number("core") {
            Some(core) => self.0.ask_core(core, query),
            None => self.0.list(query, number("limit").unwrap_or(RESIDUES)),
        })
    }

    fn turn(&mut self, _: &Control<'_>) {
        self.0.turn(|core, residue| json!([core, residue]));
    }
}

fn asked(path: &Path, arguments: Value) -> Value {
    ask(path, &Request::with("residues", arguments)).unwrap()
}

/// The rows of an answer: cores with residues.
fn rows(answer: &Value) -> Vec<(u64, u64)> {
    let number = |row: &Value, at: usize| row[at].as_u64().unwrap();
    let rows = answer["residues"].as_array().unwrap();
    rows.iter().map(|row| (number(row, 0), number(row, 1))).collect()
}

fn ask_all(path: &Path) {
    let asked_often = (0..5000).map(|_| asked(path, json!({})));
    let answer = asked_often.into_iter().find(|it| it["matching"] == RESIDUES);
    let all = rows(&answer.expect("a row for every residue"));
    assert!(all.iter().all(|(core, residue)| residue % 2 == *core), "{all:?}");
    assert_eq!(all.iter().map(|row| row.1).collect::<BTreeSet<_>>().len(), RESIDUES);

    let some = asked(path, json!({ "first": 700, "limit": 20 }));
    assert_eq!((some["matching"].as_u64(), rows(&some).len()), (Some(300), 20));
    assert!(rows(&some).iter().all(|(_, residue)| *residue >= 700), "{some}");
    for core in 0..2 {
        assert_eq!(asked(path, json!({ "core": core, "first": 700 })), json!([core, 700 + core]));
    }
    assert_eq!(asked(path, json!({ "core": 1, "first": RESIDUES })), Value::Null);
}

#[test]
fn clients_get_the_rows_of_all_cores_while_packets_pass() {
    for deployment in [Deployment::run_to_completion(2), Deployment::pipeline([1, 2])] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nf.sock");
        let mut socket = Socket::bind(&path).unwrap();
        let is_over = AtomicBool::new(false);
        let (asker, mailboxes) = mailbox(1);
        let mut operator = Operator(Listing::new("residues", asker));
        let graph = source(|_| Ok::<_, Infallible>(Count { next: 0, is_over: &is_over }))
            .shard_by(|number: &Number| Shard::Worker(number.0 as usize % 2))
            .try_stage(|core| {
                let lister = Lister::new(mailboxes.open(core)?);
                Ok::<_, Error>(Residues { seen: [false; RESIDUES], lister })
            })
            .sink(|_| Ok::<_, Infallible>(Nothing));
        let mut waited = None;
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let done = std::panic::catch_unwind(|| ask_all(&path));
                is_over.store(true, Ordering::Relaxed);
                done
            });
            let run = Engine::plan(graph, deployment)
                .unwrap()
                .run(|control| waited = Some(with(&mut socket).run(control, &mut operator)));
            assert!(run.unwrap().is_whole());
            client.join().unwrap().unwrap();
        });
        assert_eq!(waited, Some(Waited::Finished));
    }
}
