//! Nodes' findings about backends count together.

use super::etcd::Server;
use super::node::{Node, run, start, status, write_node};
use super::shared;
use hotloop_cluster::store::Key;
use hotloop_cluster::store::etcd::{Etcd, Operation};
use hotloop_tests::prometheus::get;
use hotloop_tests::{Program, tool, wait_until};
use serde_json::Value;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

/// A closed port, and one with a server.
fn ports() -> (u16, u16) {
    let of = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let [closed, open] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = (of(&closed), of(&open));
    // Unaccepted connections would at some time be too many.
    std::thread::spawn(move || open.incoming().for_each(drop));
    ports
}

/// Two services: `dead`, at a closed port, and `live`, at an open one.
fn probed(closed: u16, open: u16, more: &str) -> String {
    let service = |index: usize, (name, port): (&str, u16)| {
        format!(
            "[[service]]\nname = \"{name}\"\naddress = \"203.0.113.{index}\"\nprotocol = \"tcp\"\nports = \"80\"\n\
             health = {{ kind = \"tcp\", port = {port}, interval_ms = 50, rise = 1, fall = 1 }}\n\
             backend = [{{ address = \"127.0.0.1\" }}]\n"
        )
    };
    let services = service(1, ("dead", closed)) + &service(2, ("live", open));
    format!("[balancer]\nmtu = 1500\n{more}\n{services}")
}

/// The row of a service's backend.
fn row(program: &Program, service: &str) -> Value {
    let rows = program.ask("backends").expect("it answers");
    let mut rows = rows.as_array().unwrap().iter();
    rows.find(|row| row["service"] == service).cloned().unwrap_or_default()
}

/// Waits until both services' backends have these states.
fn wait_for(program: &Program, what: &str, dead: &str, live: &str) {
    wait_until(what, || {
        row(program, "dead")["state"] == dead && row(program, "live")["state"] == live
    });
}

/// A node that consists only of its entry in the store.
struct Fake {
    etcd: Etcd,
    key: String,
    lease: i64,
}

impl Fake {
    fn new(server: &Server, name: &str) -> Self {
        let etcd = server.client();
        let lease = etcd.grant(600).unwrap();
        let fake = Self { etcd, key: format!("/ipip-lb/health/{name}"), lease };
        fake.finds(&[]);
        fake
    }

    fn finds(&self, names: &[&str]) {
        self.says(&serde_json::json!({ "down": names }).to_string());
    }

    fn says(&self, text: &str) {
        let put = Operation::PutLeased(&self.key, text, self.lease);
        self.etcd.transact(&[], &[put]).unwrap();
    }

    fn dies(self) {
        self.etcd.revoke(self.lease).unwrap();
    }
}

/// The output of `ctl backends` for people.
fn text(folder: &Path) -> String {
    let mut ctl = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    ctl.current_dir(folder).args(["ctl", "--control", "lb.sock", "backends"]);
    String::from_utf8(ctl.output().unwrap().stdout).unwrap()
}

/// The output for an operator if only this node, of three, finds a backend down.
fn check_what_is_shown(a: &Program, folder: &Path, metrics: SocketAddr) {
    let shown = row(a, "dead")["health"].clone();
    let expected =
        serde_json::json!({ "is_up_here": false, "down_on": ["a"], "nodes": 3, "needed": 2 });
    assert_eq!(shown, expected);
    assert_eq!(row(a, "live")["health"], Value::Null);
    let shown = text(folder);
    let words = "127.0.0.1 of dead: counts as up, and this node finds it down: of 3 nodes, 2 must find it \
                 down; that do: a";
    assert!(shown.contains(words), "{shown}");
    let whole = status(a);
    assert_eq!((&whole["down"], &whole["health"]["down_here"]), (&0.into(), &1.into()));
    assert_eq!(
        (&whole["health"]["nodes"], &whole["health"]["is_shared"]),
        (&3.into(), &true.into())
    );
    let scraped = get(metrics, "/metrics").unwrap();
    for metric in ["backends_down 0", "backends_down_here 1", "health_nodes 3"] {
        assert!(scraped.contains(&format!("ipip_lb_{metric}\n")), "{scraped}");
    }
}

#[test]
fn one_of_three_nodes_does_not_count_and_two_do() {
    let mut server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let (closed, open) = ports();
    server.write(&probed(closed, open, ""));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_node(folder, &server.access(), "a");
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = free.local_addr().unwrap();
    drop(free);
    let mut command = run(folder);
    command.args(["--metrics", &metrics.to_string()]);
    let a = Program::start(command, &folder.join("lb.sock"));
    wait_for(&a, "a node alone decides", "down", "up");

    // Its findings are the names that other nodes use.
    let (dead, live) = (format!("127.0.0.1 tcp {closed}"), format!("127.0.0.1 tcp {open}"));
    wait_until("it says what it finds", || {
        let said = server.client().page(Key::One("/ipip-lb/health/a"), 0, 1).unwrap().values;
        said.first().is_some_and(|it| it.value == format!("{{\"down\":[\"{dead}\"]}}"))
    });
    let (b, c) = (Fake::new(&server, "b"), Fake::new(&server, "c"));
    wait_for(&a, "one of three does not count", "up", "up");
    check_what_is_shown(&a, folder, metrics);

    b.finds(&[&dead]);
    wait_for(&a, "two of three count", "down", "up");
    assert_eq!(row(&a, "dead")["health"], Value::Null);
    b.finds(&[&live]);
    wait_for(&a, "each backend for itself", "up", "up");
    c.finds(&[&live]);
    wait_for(&a, "two others count", "up", "down");
    assert_eq!(row(&a, "live")["health"]["down_on"], serde_json::json!(["b", "c"]));
    assert_eq!(row(&a, "live")["health"]["is_up_here"], true);
    // One of two.
    b.says("nonsense");
    wait_for(&a, "what is not readable does not count", "down", "down");
    b.finds(&[]);
    wait_for(&a, "three again", "up", "up");
    // Differences that last are in the log.
    std::thread::sleep(std::time::Duration::from_secs(4));

    server.kill();
    wait_for(&a, "its own finding counts without the store", "down", "up");
    assert_eq!(status(&a)["health"]["is_shared"], false);
    server.restart();
    wait_for(&a, "the others count again", "up", "up");
    server.signal("STOP");
    wait_for(&a, "its own finding counts while the store is silent", "down", "up");
    server.signal("CONT");
    wait_for(&a, "the others count once more", "up", "up");
    b.dies();
    c.dies();
    wait_for(&a, "nodes that are gone do not count", "down", "up");
    wait_until("it says so", || status(&a)["health"]["nodes"] == 1);
    let (_, log) = a.end();
    for expected in [
        "health: a backend is down once 2 of 3 nodes find it down; the others are b, c",
        "health: 127.0.0.1 counts as up, other than this node finds: 1 of 3 nodes find it down (a)",
        "as it can't exchange that with the other nodes",
    ] {
        assert!(log.contains(expected), "{log}");
    }
}

#[test]
fn nodes_hear_each_other_until_one_dies() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let (closed, open) = ports();
    server.write(&shared(1));
    let a = Node::start(&server, "a");
    let folder = tempfile::tempdir().unwrap();
    write_node(folder.path(), &server.access(), "b");
    let b = start(folder.path());
    let c = Fake::new(&server, "c");
    wait_until("all are there", || status(&a.program)["health"]["nodes"] == 3);
    // Both probe from the change on.
    server.write(&probed(closed, open, "[health]\nquorum = 2"));
    wait_for(&a.program, "both find it down", "down", "up");
    wait_for(&b, "both find it down", "down", "up");
    // It sends nothing more, and its lease ends.
    let kill = format!("kill -s KILL {}", b.id());
    assert!(tool("sh").unwrap().args(["-c", &kill]).status().unwrap().success());
    wait_for(&a.program, "a node that has died does not count", "up", "up");
    assert_eq!(row(&a.program, "dead")["health"]["down_on"], serde_json::json!(["a"]));
    assert_eq!(status(&a.program)["health"]["nodes"], 2);
    // With fewer nodes than the quorum, all must agree.
    c.dies();
    wait_for(&a.program, "it is alone", "down", "up");
}
