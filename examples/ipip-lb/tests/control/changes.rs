//! Changes by `ctl` and signals while the balancer runs.

use super::program::{Program, TCP_COUNT, UDP_COUNT, client, config};
use crate::deployed::service;
use std::fs;

#[test]
fn ctl_drains_weighs_and_removes_across_reloads_until_a_reset() {
    let program = Program::start();
    let both = ["10.0.0.1", "10.0.0.2"];
    assert_eq!(program.new_connections_go_to(), both);
    let of_second = program.matching("backend=10.0.0.2,service=web");

    let text = program.text(&["drain", "10.0.0.2"]);
    assert!(text.contains("10.0.0.2 gets no new connections in 1 service"), "{text}");
    assert_eq!(program.backend("web", "10.0.0.2"), ("drained".to_owned(), 0));
    assert_eq!(program.new_connections_go_to(), ["10.0.0.1"]);
    assert_eq!(program.matching("backend=10.0.0.2,service=web"), of_second);

    assert_eq!(program.json(&["weight", "10.0.0.2", "7"])["changed"], 1);
    assert_eq!(program.backend("web", "10.0.0.2"), ("up".to_owned(), 7));
    assert_eq!(program.json(&["drain", "10.0.0.1", "--service", "web"])["changed"], 1);
    assert_eq!(program.backend("web", "10.0.0.1").1, 0);
    assert_eq!(program.backend("dns", "10.0.0.1"), ("up".to_owned(), 1));

    assert_eq!(program.json(&["remove", "10.0.0.2"])["removed"], 1);
    assert_eq!(program.backend("web", "10.0.0.2").0, "removed");
    // A removed backend can't be changed, and no connection uses it any more.
    program.refusal(&["weight", "10.0.0.2", "1"], 1);
    program.refusal(&["connections", "--filter", "backend=10.0.0.2"], 1);

    assert_eq!(program.json(&["remove", "10.0.0.1", "--service", "web", "--flush"])["flush"], true);
    assert_eq!(program.backend("web", "10.0.0.1").0, "flushed");
    let flushed = (1..=TCP_COUNT).filter(|number| {
        let answer = program.json(&["lookup", "tcp", &client(*number), "203.0.113.10:80"]);
        answer["why"].as_str().unwrap().contains("flushed")
    });
    assert_eq!(flushed.count() as u64, TCP_COUNT - of_second);

    let answer = program.json(&["reload"]);
    assert_eq!((&answer["services"], &answer["backends"]), (&3.into(), &4.into()));
    assert_eq!((&answer["kept"]["removed"], &answer["undone"]["removed"]), (&2.into(), &0.into()));
    assert_eq!(program.backend("web", "10.0.0.1").0, "flushed");
    assert_eq!(program.backend("web", "10.0.0.2").0, "removed");

    assert_eq!(program.json(&["reload", "--reset"])["undone"]["removed"], 2);
    assert_eq!(program.backend("web", "10.0.0.1"), ("up".to_owned(), 1));
    assert_eq!(program.backend("web", "10.0.0.2"), ("up".to_owned(), 2));
    assert_eq!(program.new_connections_go_to(), both);
    program.end("-INT");
}

#[test]
fn each_change_leaves_a_message_with_its_result_and_its_client() {
    let program = Program::start();
    let user = rustix::process::getuid().as_raw();
    for (command, code, result) in [
        (
            "drain 10.0.0.2 --for 1h",
            0,
            "10.0.0.2 gets no new connections in 1 service, and is removed in 3600 s",
        ),
        ("drain 10.0.0.77", 1, "error: 10.0.0.77 is no backend there; ctl backends lists them"),
        ("weight 10.0.0.2 7", 0, "10.0.0.2 has weight 7 in 1 service"),
        (
            "remove 10.0.0.2 --flush",
            0,
            "10.0.0.2 is taken out of 1 service, and its connections end",
        ),
        ("block 192.0.2.0/24", 0, "192.0.2.0/24 is blocked until it is unblocked"),
        ("unblock 192.0.2.0/24", 0, "192.0.2.0/24 is no longer blocked"),
        ("reload", 0, "reloaded: 3 services with 4 backends"),
        ("withdraw", 1, "error: "),
    ] {
        let arguments: Vec<_> = command.split(' ').collect();
        assert_eq!(program.ctl(&arguments).status.code(), Some(code), "{command}");
        let by = format!("INFO ipip-lb: ctl {} by user {user}, process ", arguments[0]);
        let shown = || program.messages(&[&by, &format!(": {result}")]);
        program.wait_until(command, |_| shown().len() == 1);
    }
    for command in ["status", "backends", "blocks", "connections"] {
        program.text(&[command]);
    }
    assert_eq!(program.messages(&["ctl ", " by "]).len(), 8);
    program.end("-INT");
}

#[test]
fn a_reload_goes_over_to_what_the_file_says_now() {
    let program = Program::start();
    let more = config() + &service("more", "2001:db8:f::1 any any", "", &["2001:db8:b::1"]);
    program.configure(&more.replace("10.0.0.2", "10.0.0.9"));
    let text = program.text(&["reload"]);
    assert!(text.contains("reloaded: 4 services with 5 backends"), "{text}");
    assert_eq!(program.backend("more", "2001:db8:b::1"), ("up".to_owned(), 1));
    assert_eq!(program.new_connections_go_to(), ["10.0.0.1", "10.0.0.9"]);

    // By a signal just as well.
    program.configure(&config());
    program.signal("-HUP");
    program.wait_until("SIGHUP", |it| it.has_said("SIGHUP: the configuration was reloaded"));
    assert_eq!(program.new_connections_go_to(), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(program.json(&["status"])["reloads"], 2);
    program.end("-INT");
}

#[test]
fn a_reload_of_a_broken_file_changes_nothing_and_says_why() {
    let program = Program::start();
    program.text(&["weight", "10.0.0.1", "5"]);
    for (broken, reason) in [
        (config().replace("203.0.113.10", "203.0.113.310"), "lb.toml:"),
        (config().replace("mtu = 1500", "mtu = 15"), "balancer.mtu"),
        ("[balancer".to_owned(), "lb.toml:1"),
        (config().replace("workers = 2", "workers = 3"), "[engine] can't change"),
        (config().replace("\"adaptive\"", "\"spin\""), "[engine] can't change"),
        (config().replace("02:00:00:00:01:01", "02:00:00:00:01:02"), "[[port]] can't change"),
        (config().replace("20_000", "20_001"), "[[port]] can't change"),
        (config().replace("next_hop_mac", "vlan = 7\nnext_hop_mac"), "[[port]] can't change"),
        (config().replace("4096", "8192"), "connections_max can't change"),
        (
            config().replace("mtu =", &format!("hash_key = \"{}\"\nmtu =", "1".repeat(32))),
            "balancer.hash_key can't change",
        ),
    ] {
        program.configure(&broken);
        let refusal = program.refusal(&["reload"], 1);
        assert!(refusal.contains(reason), "{refusal}");
        // Everything is unchanged, including manual changes.
        assert_eq!(program.backend("web", "10.0.0.1"), ("up".to_owned(), 5));
        assert_eq!(program.new_connections_go_to(), ["10.0.0.1", "10.0.0.2"]);
        let text = program.text(&["status"]);
        assert!(text.contains("the last one failed") && text.contains(reason), "{text}");
    }
    program.signal("-HUP");
    program.wait_until("SIGHUP", |it| it.has_said("SIGHUP: nothing has changed: "));
    fs::remove_file(program.folder.path().join("lb.toml")).unwrap();
    assert!(program.refusal(&["reload"], 1).contains("lb.toml"));
    // Once the file is right again, nothing is left of the error.
    program.configure(&config());
    program.text(&["reload"]);
    assert!(!program.text(&["status"]).contains("failed"));
    assert_eq!(program.backend("web", "10.0.0.1"), ("up".to_owned(), 5));
    program.end("-INT");
}

/// Backends leave, come back, or get another identity under the same name: the report's number of
/// packets sent to backends stays right.
#[test]
fn what_was_sent_to_backends_that_left_is_not_forgotten() {
    let program = Program::start();
    let sent = TCP_COUNT + 10 + UDP_COUNT;
    let backends = program.json(&["backends"]);
    let of = |backends: &serde_json::Value, service: &str, address: &str| {
        let mut rows = backends.as_array().unwrap().iter();
        let row = rows.find(|row| row["service"] == service && row["address"] == address).unwrap();
        row["packets"].as_u64().unwrap()
    };
    let before = of(&backends, "web", "10.0.0.2");
    assert!(before > 0);
    let is_unchanged = |program: &Program| {
        program.json(&["backends"]).as_array().unwrap().iter().any(|row| {
            row["service"] == "web" && row["address"] == "10.0.0.2" && row["packets"] == before
        })
    };
    program.text(&["remove", "10.0.0.2", "--flush"]);
    assert!(is_unchanged(&program));
    program.text(&["reload", "--reset"]);
    assert!(is_unchanged(&program));
    // It leaves by the file as well, with a whole service.
    let (without, _) =
        config().split_once("[[service]]").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    program.configure(&(without + &service("web", "203.0.113.10 tcp 80", "", &["10.0.0.1"])));
    program.text(&["reload"]);
    program.text(&["reload"]);
    let report = program.end("-INT");
    let rows = report["balancer"]["backends"].as_array().unwrap();
    let sum: u64 = rows.iter().map(|row| row["packets"].as_u64().unwrap()).sum();
    assert_eq!(sum, sent, "{rows:#?}");
    let gone: Vec<_> = rows.iter().filter(|row| row["is_gone"] == true).collect();
    assert_eq!(gone.len(), 2, "{rows:#?}");
    assert_eq!((&gone[0]["service"], &gone[0]["packets"]), (&"dns".into(), &UDP_COUNT.into()));
    assert_eq!((&gone[1]["address"], &gone[1]["packets"]), (&"10.0.0.2".into(), &before.into()));
}
