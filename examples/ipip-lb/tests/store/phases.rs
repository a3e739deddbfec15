//! A change in two phases, in a real etcd.

use super::etcd::Server;
use hotloop_cluster::store::phases::{Action, Change, Coordinator, Member, Outcome, Step, Store};

#[test]
fn two_nodes_prepare_and_go_over_and_one_that_refuses_stops_a_change() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let etcd = server.client();
    let mut nodes = ["a", "b"].map(|name| (Member::new(name, name), etcd.grant(600).unwrap()));
    let lease = etcd.grant(600).unwrap();
    let expected = vec!["a".to_owned(), "b".to_owned()];
    let change = |pointer: &str, replaces| Change {
        pointer: pointer.to_owned(),
        replaces,
        expected: expected.clone(),
        is_forced: false,
        deadline_ms: 1000,
        writes: Vec::new(),
    };
    let mut alone = Coordinator::new(change("0", 0));
    let absent = alone.observe(&etcd.read().unwrap(), 0);
    assert_eq!(absent, Step::End(Outcome::Absent(expected.clone())));

    // Each in turn, until no participant has work left.
    let mut drive = |change: Change, answer: Result<(), String>| {
        let (mut coordinator, mut adopted) = (Coordinator::new(change), Vec::new());
        loop {
            for (node, lease) in &mut nodes {
                while let Some(action) = node.observe(&etcd.read().unwrap()) {
                    match action {
                        Action::Transact(transaction) => {
                            let (held, _) = Store::transact(&etcd, &transaction, *lease).unwrap();
                            node.transacted(held);
                        }
                        Action::Prepare(at, _) => node.answer(at, answer.clone()),
                        Action::Adopt { pointer, .. } => adopted.push(pointer),
                        Action::Discard => {}
                    }
                }
            }
            match coordinator.observe(&etcd.read().unwrap(), 0) {
                Step::Wait => {}
                Step::Transact(transaction) => {
                    Store::transact(&etcd, &transaction, lease).unwrap();
                }
                // By now the nodes have acted on the final state.
                Step::End(outcome) => return (outcome, adopted),
            }
        }
    };
    let (outcome, adopted) = drive(change("1", 0), Ok(()));
    let Outcome::Committed(first) = outcome else { panic!("{outcome:?}") };
    assert_eq!(adopted, ["1", "1"]);
    let (outcome, adopted) = drive(change("2", first), Err("no memory".into()));
    assert_eq!(outcome, Outcome::Refused("a".into(), "no memory".into()));
    assert!(adopted.is_empty());
    let (outcome, _) = drive(change("3", first - 1), Ok(()));
    assert_eq!(outcome, Outcome::Conflict(first));
    let (outcome, adopted) = drive(change("4", first), Ok(()));
    let Outcome::Committed(second) = outcome else { panic!("{outcome:?}") };
    assert_eq!(adopted.len(), 2);
    // A node whose lease ends is missed.
    etcd.revoke(nodes[1].1).unwrap();
    let mut short = Coordinator::new(change("5", second));
    let absent = short.observe(&etcd.read().unwrap(), 0);
    assert_eq!(absent, Step::End(Outcome::Absent(vec!["b".into()])));
}
