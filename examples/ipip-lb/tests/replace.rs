//! A program takes over from the running one: no connection breaks, operators' changes stay, and a
//! program that can't take over changes nothing.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::namespace::{
    ANNOUNCE, BALANCER, SILENT_PORT, command, dns, routes, service, start, with_operator_file,
};
use hotloop_cluster::replace::Predecessor;
use hotloop_ops::{Request, ask};
use hotloop_tests::network::{Network, ip};
use hotloop_tests::{Program, tool, wait_until};
use ipip_lb::config::Config;
use ipip_lb::replace::{Inherited, predecessor};
use rustix::process::{Pid, Signal, getpgid, kill_process};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output};

/// Number of times that a balancer is replaced under load.
const ROUNDS: u32 = 20;

#[test]
fn no_upload_is_broken_when_the_balancer_is_replaced_twenty_times() {
    let uploads = |arguments: &[&str]| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/replace/uploads.sh");
        let mut command = Command::new(script);
        command.arg(env!("CARGO_BIN_EXE_ipip-lb")).args(arguments).output().unwrap()
    };
    for arguments in [&[&*ROUNDS.to_string()][..], &["1", "--apart"]] {
        let output = uploads(arguments);
        let (shown, errors) = said(&output);
        if output.status.code() == Some(2) {
            return println!("skipped: {}", errors.trim());
        }
        assert!(output.status.success(), "{shown}{errors}");
        println!("{shown}");
    }
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A configuration with a backend that is down, because nothing listens there.
fn config() -> String {
    let health =
        "[service.health]\nkind = \"tcp\"\nport = 9\ninterval_ms = 100\ntimeout_ms = 100\n";
    let backends = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
    [BALANCER, SILENT_PORT].concat()
        + &service("web", "203.0.113.10 tcp 80", "", &backends)
        + &service("down", "203.0.113.11 tcp 80", health, &["127.0.0.1"])
}

/// A program that takes over.
fn replacing(folder: &Path, config: &str) -> Command {
    let mut command = command(folder, config);
    command.arg("--replace");
    command
}

fn ctl(folder: &Path, arguments: &str) {
    let mut ctl = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    ctl.current_dir(folder).arg("ctl").args(arguments.split(' ')).args(["--control", "lb.sock"]);
    let output = ctl.output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", said(&output).1);
}

/// Each backend with its weight, its state, and the condition that ends its drain.
fn backends(program: &Program) -> Vec<Value> {
    let rows = program.ask("backends").unwrap();
    let rows = rows.as_array().unwrap().iter();
    rows.map(|it| json!([it["address"], it["weight"], it["state"], it["draining"]["until_empty"]]))
        .collect()
}

#[test]
fn what_operators_have_changed_outlasts_many_takeovers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut program = start(path, &config());
    wait_until("a backend is down", || program.ask("status").unwrap()["down"] == 1);
    ctl(path, "drain 10.0.0.1 --for 1h");
    ctl(path, "weight 10.0.0.2 7");
    ctl(path, "remove 10.0.0.3");
    ctl(path, "block 198.51.100.0/24 --for 1h");
    ctl(path, "block 192.0.2.77");
    let before = backends(&program);
    let expected = json!([
        ["10.0.0.1", 0, "drained", false],
        ["10.0.0.2", 7, "up", null],
        ["10.0.0.3", 0, "removed", null],
        ["127.0.0.1", 1, "down", null]
    ]);
    assert_eq!(json!(before), expected);
    for _ in 0..3 {
        let next = Program::start(replacing(path, &config()), &path.join("lb.sock"));
        let (report, errors) = program.wait();
        assert_eq!(report["balanced"], true, "{report}");
        assert!(errors.contains("replace: everything is handed over"), "{errors}");
        wait_until("the next one answers", || next.ask("status").is_some());
        assert_eq!(backends(&next), before);
        let blocks = next.ask("blocks").unwrap();
        let blocks = blocks.as_array().unwrap().iter();
        let blocks: Vec<_> =
            blocks.map(|it| (it["prefix"].clone(), it["left_s"].is_u64())).collect();
        assert_eq!(blocks, [("192.0.2.77".into(), false), ("198.51.100.0/24".into(), true)]);
        program = next;
    }
    // The down backend may come up again.
    let _server = std::net::TcpListener::bind("127.0.0.1:9");
    if _server.is_ok() {
        wait_until("a backend is up", || program.ask("status").unwrap()["down"] == 0);
    }
    let (_, errors) = program.end();
    assert!(errors.contains("replace: this program has taken over; for "), "{errors}");
}

/// Requests a takeover, and sends nothing more.
fn asked(folder: &Path) -> Result<Predecessor, String> {
    asked_with(folder, &config())
}

fn asked_with(folder: &Path, config: &str) -> Result<Predecessor, String> {
    let config = Config::parse("lb.toml", config).unwrap();
    predecessor::ask(&folder.join("lb.sock"), &config).map_err(|error| error.to_string())
}

fn taken_over(successor: Predecessor) -> Inherited {
    successor.take_over(|| ()).unwrap()
}

#[test]
fn what_can_not_take_over_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let refused = |config: &str| {
        let output = replacing(path, config).output().unwrap();
        let (_, errors) = said(&output);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("nothing has changed"), "{errors}");
        errors
    };
    let nobody = refused(&config());
    assert!(nobody.contains("start without --replace"), "{nobody}");

    let program = start(path, &config());
    let other = refused(&config().replace("10.0.0.3", "10.0.0.4"));
    assert!(other.contains("load it here first (ctl reload)"), "{other}");

    // Of two simultaneous requests, the second is refused, until the first program has gone away.
    let first = asked(path).unwrap();
    let second = refused(&config());
    assert!(second.contains("another program is taking over already"), "{second}");
    drop(first);
    wait_until("another may ask", || asked(path).is_ok());

    // A program that is stuck.
    let id = Pid::from_raw(program.id() as i32).unwrap();
    kill_process(id, Signal::STOP).unwrap();
    let stuck = refused(&config());
    assert!(stuck.contains("is it stuck?"), "{stuck}");
    kill_process(id, Signal::CONT).unwrap();

    let (report, errors) = program.end();
    assert_eq!(report["balanced"], true, "{report}");
    let gone = "nothing is handed over, and this program goes on: it went away";
    assert!(errors.contains(gone), "{errors}");
}

/// `run --replace --detach`: its exit code, and its messages up to then. It leaves a process whose messages
/// go to the same file.
fn detached(folder: &Path, config: &str) -> (Option<i32>, String) {
    let messages = folder.join("detached.err");
    let mut command = replacing(folder, config);
    command.args(["--detach", "--duration", "60"]).stdout(std::process::Stdio::null());
    let status = command.stderr(File::create(&messages).unwrap()).status().unwrap();
    (status.code(), fs::read_to_string(messages).unwrap())
}

#[test]
fn a_detached_program_is_left_in_the_background_once_it_has_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (code, errors) = detached(path, &config());
    assert!(code == Some(2) && errors.contains("start without --replace"), "{code:?}: {errors}");

    let first = start(path, &config());
    let process = || {
        let status = ask(&path.join("lb.sock"), &Request::new("status")).unwrap();
        status["process"].as_u64().unwrap() as u32
    };
    let (code, errors) = detached(path, &config().replace("10.0.0.3", "10.0.0.4"));
    assert!(code == Some(2) && errors.contains("load it here first"), "{code:?}: {errors}");
    assert_eq!(process(), first.id());

    let (code, errors) = detached(path, &config());
    assert_eq!(code, Some(0), "{errors}");
    let next = process();
    assert_ne!(next, first.id());
    let (report, _) = first.wait();
    assert_eq!(report["balanced"], true, "{report}");
    let next = Pid::from_raw(next as i32).unwrap();
    assert_ne!(getpgid(Some(next)).unwrap(), getpgid(None).unwrap());
    kill_process(next, Signal::TERM).unwrap();
    wait_until("it ends", || !path.join("lb.sock").exists());
}

#[test]
fn a_successor_that_goes_away_before_its_time_leaves_the_program_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let program = start(path, &config());
    for learns in [false, true] {
        wait_until("another may ask", || {
            let Ok(mut successor) = asked(path) else { return false };
            if learns {
                successor.learn().unwrap();
            }
            true
        });
    }
    // A successor that ends once it has everything: the program has ended, too, and no program is
    // left.
    wait_until("another may ask", || {
        let Ok(mut successor) = asked(path) else { return false };
        successor.learn().unwrap();
        drop(taken_over(successor));
        true
    });
    let (report, errors) = program.wait();
    assert_eq!(report["balanced"], true, "{report}");
    assert_eq!(errors.matches("and this program goes on: it went away").count(), 2, "{errors}");
    assert!(errors.contains("replace: everything is handed over"), "{errors}");
    assert!(asked(path).is_err_and(|it| it.contains("start without --replace")));
}

#[test]
fn systemd_hears_which_process_is_the_service_and_not_that_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let notify = path.join("notify");
    let socket = UnixDatagram::bind(&notify).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let start = |mut command: Command| {
        command.env("NOTIFY_SOCKET", &notify);
        Program::start(command, &path.join("lb.sock"))
    };
    let first = start(command(path, &config()));
    let second = start(replacing(path, &config()));
    let id = second.id();
    drop(first.wait());
    wait_until("the next one answers", || second.ask("status").is_some());
    let mut heard = Vec::new();
    let hear = |heard: &mut Vec<String>| {
        let mut message = [0; 256];
        let count = socket.recv(&mut message).unwrap();
        heard.push(String::from_utf8(message[..count].to_vec()).unwrap());
    };
    // systemd has a watchdog for the service, and gives its time to the first process alone.
    while !heard.contains(&"WATCHDOG=1".to_owned()) {
        hear(&mut heard);
    }
    drop(second.end());
    while heard.last().is_none_or(|it| !it.starts_with("STOPPING=1")) {
        hear(&mut heard);
    }
    heard.retain(|it| it != "WATCHDOG=1");
    let expected = [
        "READY=1\nSTATUS=running".to_owned(),
        format!("MAINPID={id}\nSTATUS=taking over"),
        "READY=1\nSTATUS=running".to_owned(),
        "STOPPING=1\nSTATUS=stopping".to_owned(),
    ];
    assert_eq!(heard, expected);
}

/// An interface in the output of `ip`: its number, and its addresses.
fn interface(name: &str) -> (Value, Vec<Value>) {
    let arguments = ["-j", "-4", "address", "show", "dev", name];
    let output = tool("ip").unwrap().args(arguments).output().unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let addresses = shown[0]["addr_info"].as_array().into_iter().flatten();
    (shown[0]["ifindex"].clone(), addresses.map(|it| it["local"].clone()).collect())
}

#[test]
fn interfaces_stay_with_what_they_have_and_an_unlucky_successor_takes_them_along() {
    let wired = Network::enter().and_then(|network| network.pair("a0", "b0").map(|()| network));
    let _network = match wired {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    ip(&["address", "add", "192.0.2.1/24", "dev", "a0"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let port = "[[port]]\nname = \"uplink\"\ndevice = \"net_af_packet0,iface=a0\"\n\
                kernel_interface = \"edge0\"\ntakeover = true\nnext_hop_mac = \"02:00:00:00:00:01\"\n";
    let config = [BALANCER, ANNOUNCE, port].concat() + &dns("dns", "203.0.113.10", &["10.0.0.1"]);
    let mut program = start(path, &config);
    wait_until("the VIP is announced", || routes() == ["203.0.113.10"]);
    let (vips, edge) = (interface("vips0"), interface("edge0"));
    assert_eq!(edge.1, ["192.0.2.1"]);
    for _ in 0..2 {
        let next = Program::start(replacing(path, &config), &path.join("lb.sock"));
        drop(program.wait());
        wait_until("the next one answers", || next.ask("status").is_some());
        assert_eq!((interface("vips0"), interface("edge0")), (vips.clone(), edge.clone()));
        assert_eq!(routes(), ["203.0.113.10"]);
        program = next;
    }
    drop(program.end());
    assert_eq!((interface("a0").1, routes().len()), (edge.1.clone(), 0));

    // A successor that has everything, and goes away: nothing is announced.
    let program = start(path, &config);
    wait_until("the VIP is announced", || routes() == ["203.0.113.10"]);
    let mut successor = asked_with(path, &config).unwrap();
    successor.learn().unwrap();
    let inherited = taken_over(successor);
    drop(program.wait());
    assert_eq!(routes(), ["203.0.113.10"]);
    drop(inherited);
    wait_until("nothing is announced", || routes().is_empty());
    // The next start restores the settings that had been taken over, and takes them over again.
    let program = start(path, &config);
    assert_eq!(interface("edge0").1, ["192.0.2.1"]);
    drop(program.end());
    assert_eq!(interface("a0").1, ["192.0.2.1"]);
}

#[test]
fn a_node_of_a_cluster_comes_back_to_its_peers() {
    let _network = match Network::with_ipv6() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let peers = "trusted_network = true\npeers = [{ name = \"lb-1\", address = \"127.0.0.1:4790\" }, \
                 { name = \"lb-2\", address = \"127.0.0.1:4791\" }]\n";
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, two] = ["lb-1", "lb-2"].map(|it| {
        let config = config() + &format!("[cluster]\nnode = \"{it}\"\n{peers}");
        with_operator_file(&config, &folders[0].path().join(it))
    });
    let (first, peer) = (start(folders[0].path(), &one), start(folders[1].path(), &two));
    let are_in_sync = |program: &Program| {
        let cluster = program.ask("cluster");
        cluster.is_some_and(|it| it["is_ready"] == true && it["peers"][0]["is_caught_up"] == true)
    };
    wait_until("both are in sync", || are_in_sync(&first) && are_in_sync(&peer));
    let next =
        Program::start(replacing(folders[0].path(), &one), &folders[0].path().join("lb.sock"));
    let (report, errors) = first.wait();
    assert_eq!(report["balanced"], true, "{errors}");
    wait_until("both are in sync again", || are_in_sync(&next) && are_in_sync(&peer));
    drop((next.end(), peer.end()));
}
