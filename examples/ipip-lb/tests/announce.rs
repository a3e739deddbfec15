//! VIPs are announced by routes while they are ready, and packets from the host to them are
//! balanced.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::namespace::{
    ANNOUNCE, BALANCER, SILENT_PORT, command, dns, routes, service, start, with_operator_file,
};
use hotloop_tests::network::{Network, ip};
use hotloop_tests::prometheus::get;
use hotloop_tests::{Program, free_address, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The common part of all configurations here.
fn balancer() -> String {
    [BALANCER, ANNOUNCE, SILENT_PORT].concat()
}

/// The configuration with two VIPs of IPv4, one of IPv6, and a prefix.
fn config() -> String {
    balancer()
        + &dns("dns", "203.0.113.10", &["10.0.0.1", "10.0.0.2"])
        + &dns("time", "203.0.113.11", &["10.0.0.1"])
        + &dns("six", "2001:db8:a::10", &["10.0.0.1"])
        + &dns("net", "203.0.113.128/25", &["10.0.0.1"])
}

/// Like [`config`], with this much time between the VIPs' withdrawal and the end.
fn lingering(linger: Duration) -> String {
    let line = format!("interface = \"vips0\"\nlinger_ms = {}", linger.as_millis());
    config().replace("interface = \"vips0\"", &line)
}

/// A namespace with an address for the host to send from.
fn network() -> Result<Network, String> {
    let network = Network::with_ipv6()?;
    ip(&["address", "add", "198.51.100.5/32", "dev", "lo"])?;
    Ok(network)
}

/// Runs `ctl` with these arguments, and returns its output.
fn ctl(folder: &Path, arguments: &str) -> String {
    let mut ctl = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    ctl.current_dir(folder).arg("ctl").args(arguments.split(' ')).args(["--control", "lb.sock"]);
    let output = ctl.output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn wait_for(what: &str, expected: &[&str]) {
    wait_until(what, || routes() == expected);
}

#[test]
fn a_withdrawal_outlasts_a_restart_until_it_is_reset() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let config = balancer() + &dns("dns", "203.0.113.10", &["10.0.0.1"]);
    let config = with_operator_file(&config, &path.join("kept.json"));
    let program = start(path, &config);
    wait_for("it is announced", &["203.0.113.10"]);
    ctl(path, "withdraw");
    drop(program); // By SIGKILL.
    let metrics = free_address();
    let mut command = command(path, &config);
    command.args(["--metrics", &metrics.to_string()]);
    let program = Program::start(command, &path.join("lb.sock"));
    std::thread::sleep(Duration::from_millis(1500));
    assert!(routes().is_empty());
    let shown = |series: &str| get(metrics, "/metrics").unwrap().contains(series);
    assert!(shown("ipip_lb_vip_announced{vip=\"203.0.113.10\"} 0\n"));
    assert!(shown("ipip_lb_vip_withheld{vip=\"203.0.113.10\",reason=\"withdrawn\"} 1\n"));
    ctl(path, "reload --reset");
    wait_for("it is announced again", &["203.0.113.10"]);
    assert!(shown("ipip_lb_vip_announced{vip=\"203.0.113.10\"} 1\n"));
    assert!(!shown("ipip_lb_vip_withheld{"));
    ctl(path, "drain 10.0.0.1");
    wait_for("it is not ready", &[]);
    assert!(shown("ipip_lb_vip_withheld{vip=\"203.0.113.10\",reason=\"not_ready\"} 1\n"));
    ctl(path, "weight 10.0.0.1 1");
    wait_until("it is held", || {
        shown("ipip_lb_vip_withheld{vip=\"203.0.113.10\",reason=\"held\"} 1\n")
    });
    wait_for("it is announced after its hold", &["203.0.113.10"]);
    drop(program);
    let program = start(path, &config);
    wait_for("it is announced at once", &["203.0.113.10"]);
    // A program that leaves is announced again at its next start.
    ctl(path, "leave");
    let _ = program.wait();
    let program = start(path, &config);
    wait_for("it is announced at the next start", &["203.0.113.10"]);
    let (report, _) = program.end();
    assert_eq!(report["balanced"], true, "{report}");
}

#[test]
fn a_node_announces_without_its_peer_once_it_has_waited() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let cluster = "[cluster]\nnode = \"lb-1\"\nlisten = \"127.0.0.1:4790\"\ntrusted_network = true\n\
                   ready_timeout_s = 5\n\
                   peers = [{ name = \"lb-2\", address = \"127.0.0.1:4791\" }]\n";
    let config = balancer() + cluster + &dns("dns", "203.0.113.10", &["10.0.0.1"]);
    let config = with_operator_file(&config, &path.join("kept.json"));
    let program = start(path, &config);
    let cluster = || program.ask("cluster").unwrap();
    let first = cluster();
    assert_eq!((&first["is_ready"], routes().len()), (&false.into(), 0), "{first}");
    wait_for("it has waited", &["203.0.113.10"]);
    let last = cluster();
    assert_eq!((&last["is_ready"], &last["peers"][0]["state"]), (&true.into(), &"away".into()));
    let (_, said) = program.end();
    assert!(said.contains("peer lb-2 has sent no snapshot within 5s"), "{said}");
}

#[test]
fn routes_follow_what_is_ready_and_what_the_host_sends_is_balanced() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let program = start(path, &config());
    let all = ["203.0.113.10", "203.0.113.11", "2001:db8:a::10"];
    wait_for("all are announced", &all);
    let announced = program.ask("status").unwrap()["announced"].clone();
    assert_eq!(announced, serde_json::json!(all));

    let socket = UdpSocket::bind("198.51.100.5:9").unwrap();
    for number in 0..100_u8 {
        socket.send_to(&[number; 100], "203.0.113.10:53").unwrap();
    }
    let dns_packets = || -> u64 {
        let services = program.ask("services").unwrap();
        let services = services.as_array().unwrap().iter();
        services.filter(|it| it["name"] == "dns").map(|it| it["packets"].as_u64().unwrap()).sum()
    };
    wait_until("they are balanced", || dns_packets() == 100);

    // A VIP is ready with any backend of any of its services.
    ctl(path, "drain 10.0.0.1 --service dns");
    ctl(path, "drain 10.0.0.1 --service time");
    wait_for("one is withdrawn", &["203.0.113.10", "2001:db8:a::10"]);
    ctl(path, "weight 10.0.0.1 5 --service time");
    let begun = Instant::now();
    wait_for("it is announced again", &all);
    assert!(begun.elapsed() >= Duration::from_millis(900), "it was withdrawn, so it is held");

    // An operator takes the balancer out of service. A reload does not change that.
    ctl(path, "withdraw");
    assert!(routes().is_empty());
    ctl(path, "reload");
    std::thread::sleep(Duration::from_millis(200));
    assert!(routes().is_empty());
    assert_eq!(program.ask("status").unwrap()["announced"], serde_json::json!([]));
    ctl(path, "announce");
    wait_for("all are announced again", &all);

    // One service goes and another comes.
    fs::write(path.join("lb.toml"), config().replace("203.0.113.11", "203.0.113.12")).unwrap();
    ctl(path, "reload");
    wait_for("another is announced", &["203.0.113.10", "203.0.113.12", "2001:db8:a::10"]);
    let other = config().replace("vips0", "vips1");
    fs::write(path.join("lb.toml"), other).unwrap();
    let mut reload = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    reload.current_dir(path).args(["ctl", "reload", "--control", "lb.sock"]);
    let refused = reload.output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("[announce] can't change"));

    let (report, errors) = program.end();
    assert_eq!(report["balanced"], true, "{report}");
    assert!(errors.contains("announced: 203.0.113.10"), "{errors}");
    assert!(routes().is_empty());
}

/// A flapping VIP is held for longer and longer, until an operator announces it.
#[test]
fn a_vip_that_was_withdrawn_is_held_and_ctl_says_for_how_long() {
    const HOLD_S: u64 = 60;
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let line = format!("interface = \"vips0\"\nhold_s = {HOLD_S}");
    let program = start(path, &config().replace("interface = \"vips0\"", &line));
    let (vip, others) = ("203.0.113.11", ["203.0.113.10", "2001:db8:a::10"]);
    let all = ["203.0.113.10", "203.0.113.11", "2001:db8:a::10"];
    let begun = Instant::now();
    wait_for("all are announced, and not held", &all);
    assert!(begun.elapsed() < Duration::from_secs(HOLD_S / 2));
    let held = || program.ask("status").unwrap()["held"].clone();
    assert_eq!(held(), serde_json::json!([]));

    ctl(path, "drain 10.0.0.1 --service time");
    wait_for("one is withdrawn", &others);
    assert_eq!(held(), serde_json::json!([]), "it is not ready");
    ctl(path, "weight 10.0.0.1 1 --service time");
    wait_until("it is held", || held()[0]["vip"] == vip);
    let left_s = held()[0]["left_s"].as_u64().unwrap();
    assert!((1..=HOLD_S).contains(&left_s), "{left_s}");
    for command in ["status", "services"] {
        let text = ctl(path, command);
        assert!(text.contains("\n203.0.113.11: held for "), "{command}: {text}");
    }
    let services = program.ask("services").unwrap();
    let rows = services.as_array().unwrap();
    let held_names = rows.iter().filter(|row| !row["held_s"].is_null()).map(|row| &row["name"]);
    assert_eq!(held_names.collect::<Vec<_>>(), ["time"]);
    assert_eq!(routes(), others);

    // An operator's command takes effect at once, whether or not the VIPs were withdrawn by
    // command.
    for command in ["announce", "withdraw", "announce"] {
        let begun = Instant::now();
        ctl(path, command);
        wait_for(command, if command == "announce" { &all } else { &[] });
        assert!(begun.elapsed() < Duration::from_secs(HOLD_S / 2), "{command}");
        assert_eq!(held(), serde_json::json!([]));
    }
    let (report, _) = program.end();
    assert_eq!(report["balanced"], true, "{report}");
}

#[test]
fn always_announces_what_has_no_live_backend_and_a_kill_withdraws() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let idle = dns("idle", "203.0.113.10", &["10.0.0.1*0"]);
    let busy = dns("busy", "203.0.113.11", &["10.0.0.1"]);
    // Nothing listens there.
    let health =
        "[service.health]\nkind = \"tcp\"\nport = 9\ninterval_ms = 100\ntimeout_ms = 100\n";
    let down = service("down", "203.0.113.12 udp 53", health, &["127.0.0.1"]);
    for (vips, expected) in [
        ("ready", &["203.0.113.11"][..]),
        ("always", &["203.0.113.10", "203.0.113.11", "203.0.113.12"]),
    ] {
        let config =
            balancer().replace("\"ready\"", &format!("\"{vips}\"")) + &idle + &busy + &down;
        let mut run = command(folder.path(), &config);
        let mut program = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for(vips, expected);
        program.kill().unwrap();
        wait_for("all are withdrawn", &[]);
        program.wait().unwrap();
    }
}

#[test]
fn a_program_that_is_to_end_withdraws_first_and_lingers() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let linger = Duration::from_secs(5);
    let mut run = command(folder.path(), &lingering(linger));
    let mut program = run.stdout(Stdio::null()).spawn().unwrap();
    wait_until("VIPs are announced", || routes().len() == 3);
    let asked = Instant::now();
    kill_process(Pid::from_child(&program), Signal::TERM).unwrap();
    wait_for("all are withdrawn", &[]);
    let is_running = program.try_wait().unwrap().is_none();
    assert!(program.wait().unwrap().success());
    assert!(is_running && asked.elapsed() >= linger);
}

/// The program ends on its own, in time and with a whole report.
#[test]
fn a_balancer_that_leaves_withdraws_waits_for_its_connections_and_ends() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let linger = Duration::from_secs(2);
    let lasting = "mtu = 1500\ntimeouts_s = { udp = 600 }";
    let config = lingering(linger).replace("mtu = 1500", lasting);
    let start = || {
        let program = start(path, &config);
        wait_until("VIPs are announced", || routes().len() == 3);
        program
    };
    let leaving = |program: &Program| program.ask("status").unwrap()["leaving"].clone();

    // Without connections, it ends after routers have had time to learn of it.
    let program = start();
    let begun = Instant::now();
    let text = ctl(path, "leave");
    assert!(
        text.contains("the program ends once no connection is left: 0 connections now"),
        "{text}"
    );
    assert!(routes().is_empty());
    let (report, errors) = program.wait();
    assert!(begun.elapsed() >= linger);
    assert_eq!(report["balanced"], true, "{report}");
    assert!(errors.contains("leave: the program ends; connections left: 0"), "{errors}");

    // With one, it stays, and balances packets.
    let program = start();
    let socket = UdpSocket::bind("198.51.100.5:9").unwrap();
    let send = || socket.send_to(&[0; 100], "203.0.113.10:53").unwrap();
    send();
    let status = || program.ask("status").unwrap();
    wait_until("it is balanced", || status()["balancer"]["connections"][0] == 1);
    assert!(leaving(&program).is_null());
    ctl(path, "leave --until-empty");
    assert!(routes().is_empty());
    std::thread::sleep(linger + Duration::from_millis(500));
    assert_eq!(leaving(&program), serde_json::json!({ "left_s": null, "until_empty": true }));
    let text = ctl(path, "status");
    assert!(text.contains("leaving: the program ends once no connection is left\n"), "{text}");
    // After VIPs are announced again, the program continues.
    ctl(path, "announce");
    wait_until("all are announced again", || routes().len() == 3);
    assert!(leaving(&program).is_null());
    send();
    // With a time, it ends with the connection.
    let (begun, time) = (Instant::now(), Duration::from_secs(4));
    let text = ctl(path, "leave --for 4s");
    assert!(
        text.contains("ends in 4 s, or once no connection is left: 1 connection now"),
        "{text}"
    );
    let (report, errors) = program.wait();
    assert!(begun.elapsed() >= time);
    assert_eq!(report["balanced"], true, "{report}");
    assert!(errors.contains("leave: the program goes on: an operator has its VIPs"), "{errors}");
    assert!(errors.contains("leave: the program ends; connections left: 1"), "{errors}");
    assert!(routes().is_empty());
}

#[test]
fn what_can_not_be_announced_is_said_at_the_start() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let said = |config: &str| {
        let output = command(folder.path(), config).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    ip(&["address", "add", "203.0.113.130/32", "dev", "lo"]).unwrap();
    let local = said(&config());
    assert!(
        local.contains("service.net.address: 203.0.113.130 is an address of this host"),
        "{local}"
    );
    assert!(local.contains("ip address del"), "{local}");
    ip(&["address", "del", "203.0.113.130/32", "dev", "lo"]).unwrap();
    ip(&["tuntap", "add", "dev", "vips0", "mode", "tap"]).unwrap();
    let taken = said(&config());
    assert!(taken.contains("announce.interface: there is an interface vips0 already"), "{taken}");
}
