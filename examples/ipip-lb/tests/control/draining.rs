//! Drains that end with the backend's removal.

use super::program::{Program, TCP_COUNT, config};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The configuration, with connections that outlive every test.
fn lasting() -> String {
    config().replace("tcp_opening = 600", "tcp_opening = 600, tcp_established = 600, udp = 600")
}

/// The planned end of a backend's drain; null if there is none.
fn draining(program: &Program, service: &str, address: &str) -> Value {
    let backends = program.json(&["backends"]);
    let mut rows = backends.as_array().unwrap().iter();
    let row = rows.find(|row| row["service"] == service && row["address"] == address).unwrap();
    row["draining"].clone()
}

fn wait_for_removal(program: &Program, service: &str, address: &str) {
    let is_removed = |it: &Program| it.backend(service, address) == ("removed".to_owned(), 0);
    program.wait_until("it is removed", is_removed);
    assert!(draining(program, service, address).is_null());
}

#[test]
fn a_backend_is_removed_once_its_time_is_over() {
    let program = Program::start_and_take_all(&lasting());
    let of_second = program.matching("backend=10.0.0.2,service=web");
    let begun = Instant::now();
    let text = program.text(&["drain", "10.0.0.2", "--for", "2s"]);
    let expected = "10.0.0.2 gets no new connections in 1 service, and is removed in 2 s\n";
    assert_eq!(text, expected);
    wait_for_removal(&program, "web", "10.0.0.2");
    assert!(begun.elapsed() >= Duration::from_secs(2));
    // Other backends have all remaining connections.
    let of_first = || program.matching("backend=10.0.0.1,service=web");
    assert_eq!(program.new_connections_go_to(), ["10.0.0.1"]);
    assert_eq!(of_first(), TCP_COUNT - of_second, "they move with their next packets");
    assert!(program.has_said("drain: 10.0.0.2 of web is to be removed in 2 s"));
    let left = format!("its time is over; other backends get its connections, {of_second} in all");
    assert!(program.has_said(&format!("drain: 10.0.0.2 of web is removed: {left}")));
    program.end("-INT");
}

#[test]
fn a_backend_with_connections_stays_while_an_empty_one_goes() {
    let program = Program::start_and_take_all(&lasting());
    let answer = program.json(&["drain", "10.0.0.1", "--service", "dns", "--until-empty"]);
    let until_empty = json!({ "left_s": null, "until_empty": true });
    assert_eq!(answer, json!({ "changed": 1, "weight": 0, "draining": until_empty }));
    assert_eq!(draining(&program, "dns", "10.0.0.1"), until_empty);
    let text =
        program.text(&["drain", "10.0.0.3", "--service", "turns", "--for", "1h", "--until-empty"]);
    assert!(text.contains("removed in 3600 s, or once it has no connections"), "{text}");
    // None of its connections is established, or has even begun.
    wait_for_removal(&program, "turns", "10.0.0.3");
    assert!(program.has_said("drain: 10.0.0.3 of turns is removed: it has no connections"));

    assert_eq!(program.backend("dns", "10.0.0.1"), ("drained".to_owned(), 0));
    let text = program.text(&["backends"]);
    let left = "with 12 connections left, and is removed once it has no connections";
    assert!(text.contains(&format!("\n10.0.0.1 of dns: drained, {left}")), "{text}");
    // With a time as well, it is removed at whichever comes first.
    program.text(&["drain", "10.0.0.1", "--service", "dns", "--for", "1s", "--until-empty"]);
    wait_for_removal(&program, "dns", "10.0.0.1");
    program.end("-INT");
}

#[test]
fn a_backend_is_removed_once_its_last_connection_has_ended() {
    let short = "tcp_opening = 3, tcp_established = 3";
    let program = Program::start_and_take_all(&config().replace("tcp_opening = 600", short));
    program.text(&["drain", "10.0.0.2", "--until-empty"]);
    wait_for_removal(&program, "web", "10.0.0.2");
    assert!(program.has_said("drain: 10.0.0.2 of web is removed: it has no connections"));
    program.end("-INT");
}

#[test]
fn a_weight_a_drain_without_an_end_and_a_reset_end_the_plan() {
    let program = Program::start_and_take_all(&lasting());
    let drain = || {
        program.text(&["drain", "10.0.0.1", "--for", "1h"]);
        program.text(&["drain", "10.0.0.2", "--until-empty"]);
        let left_s = draining(&program, "dns", "10.0.0.1")["left_s"].as_u64().unwrap();
        assert!((1..=3600).contains(&left_s), "{left_s}");
        assert_eq!(draining(&program, "web", "10.0.0.2")["until_empty"], true);
    };
    let is_planned = || {
        let of = [("web", "10.0.0.1"), ("dns", "10.0.0.1"), ("web", "10.0.0.2")];
        of.map(|(service, address)| !draining(&program, service, address).is_null())
    };
    drain();
    program.text(&["weight", "10.0.0.1", "3", "--service", "dns"]);
    assert_eq!(program.backend("dns", "10.0.0.1"), ("up".to_owned(), 3));
    assert_eq!(is_planned(), [true, false, true]);
    assert!(
        program.has_said("10.0.0.1 of dns is no longer to be removed: an operator has changed")
    );

    assert_eq!(program.json(&["drain", "10.0.0.2"])["draining"], Value::Null);
    assert_eq!(program.backend("web", "10.0.0.2"), ("drained".to_owned(), 0));
    assert_eq!(is_planned(), [true, false, false]);
    assert!(program.has_said("10.0.0.2 of web is no longer to be removed: an operator drains it"));

    // A change without effect doesn't end it either.
    drain();
    program.configure("[balancer");
    program.refusal(&["reload"], 1);
    assert_eq!(is_planned(), [true; 3]);
    program.configure(&lasting());
    program.text(&["reload"]);
    assert_eq!(is_planned(), [true; 3]);
    program.text(&["reload", "--reset"]);
    assert_eq!(is_planned(), [false; 3]);
    assert!(program.has_said("10.0.0.1 of web is no longer to be removed: it was reset"));
    assert_eq!(program.backend("web", "10.0.0.2"), ("up".to_owned(), 2));

    // A backend that an operator takes out is not taken out again.
    drain();
    program.text(&["remove", "10.0.0.2", "--flush"]);
    assert_eq!(program.backend("web", "10.0.0.2"), ("flushed".to_owned(), 0));
    assert_eq!(is_planned(), [true, true, false]);
    program.end("-INT");
}

#[test]
fn what_is_no_end_of_a_drain_is_refused() {
    let program = Program::start_with(&config());
    for (args, code, part) in [
        (&["drain", "10.0.0.2", "--for", "10"][..], 2, "such as 30s, 10m, 2h or 1d"),
        (&["drain", "10.9.9.9", "--for", "10s"], 1, "ctl backends lists them"),
        (&["leave", "--for", "1s", "--until-empty"], 2, "--until-empty"),
    ] {
        let refusal = program.refusal(args, code);
        assert!(refusal.contains(part), "{refusal}");
    }
    program.end("-INT");
}
