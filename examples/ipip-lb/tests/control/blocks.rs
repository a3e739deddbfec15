//! `ctl block`, `unblock` and `blocks`.

use super::program::{Program, config};
use serde_json::json;

#[test]
fn blocks_are_listed_outlast_reloads_and_end_in_their_time() {
    let program = Program::start();
    assert_eq!(program.json(&["blocks"]), json!([]));
    let text = program.text(&["block", "198.51.100.0/24"]);
    assert!(text.contains("198.51.100.0/24 is blocked until it is unblocked"), "{text}");
    let text = program.text(&["block", "2001:db8:c::/48", "--for", "10m"]);
    assert!(text.contains("2001:db8:c::/48 is blocked for 600 s"), "{text}");

    program.configure(&config().replace("10.0.0.2", "10.0.0.9"));
    program.text(&["reload"]);
    program.text(&["drain", "10.0.0.9"]);
    let blocks = program.json(&["blocks"]);
    assert_eq!(blocks.as_array().unwrap().len(), 2, "{blocks}");
    assert_eq!(blocks[0], json!({ "prefix": "198.51.100.0/24", "left_s": null }));
    assert_eq!(blocks[1]["prefix"], "2001:db8:c::/48");
    let left_s = blocks[1]["left_s"].as_f64().unwrap();
    assert!((1.0..=600.0).contains(&left_s), "{left_s}");
    let rows = program.rows(&["blocks"]);
    assert_eq!((rows.len(), rows[1][1].as_str()), (3, "-"));

    // The same prefix again: only the new time counts.
    program.text(&["block", "2001:db8:c::/48", "--for", "1s"]);
    program.wait_until("it ends", |it| it.json(&["blocks"]).as_array().unwrap().len() == 1);
    program.wait_until("it says so", |it| it.has_said("2001:db8:c::/48 is no longer blocked"));
    program.text(&["unblock", "198.51.100.0/24"]);
    assert_eq!(program.json(&["blocks"]), json!([]));
    program.end("-INT");
}

#[test]
fn what_can_not_be_blocked_says_what_to_write() {
    let program = Program::start_with(&config());
    for (args, code, part) in [
        (&["block", "clients"][..], 1, "write 203.0.113.10"),
        (&["block", "198.51.100.7/24"], 1, "write 198.51.100.0/24"),
        (&["block", "198.51.100.7", "--for", "10"], 2, "such as 30s, 10m, 2h or 1d"),
        (&["unblock", "198.51.100.7"], 1, "198.51.100.7 is not blocked; ctl blocks"),
    ] {
        let refusal = program.refusal(args, code);
        assert!(refusal.contains(part), "{refusal}");
    }
    program.end("-INT");
}
