//! Runs the programs that the documentation shows, each until SIGINT.

use crate::project::{home, run, share_target};
use std::fs;

/// The commands that make a project, without its source.
const NEW: [&str; 4] = [
    "cargo new --quiet sample",
    "cd sample",
    "cp ../hotloop/Cargo.lock .",
    "cargo add --quiet --path ../hotloop/crates/hotloop",
];

/// The pages, each with a program among its samples.
const PAGES: [&str; 2] =
    [include_str!("../../README.md"), include_str!("../../crates/hotloop/src/guide/forwarder.md")];

/// The page's sample that is a whole program.
fn program(page: &str) -> &str {
    let samples = page.split("```").skip(1).step_by(2);
    let mut bodies = samples.filter_map(|sample| sample.split_once('\n').map(|(_, body)| body));
    bodies.find(|body| body.contains("fn main()")).expect("a program on the page")
}

#[test]
fn the_programs_of_the_documentation_run_and_account_for_every_packet() {
    let home = home();
    let folder = run(home.path(), &NEW, &[]);
    share_target(&folder);
    for page in PAGES {
        fs::write(folder.join("src/main.rs"), program(page)).expect("a source file");
        let build_and_run =
            ["cargo build --quiet", "timeout --signal INT --preserve-status 2 target/debug/sample"];
        run(&folder, &build_and_run, &["balanced, pools whole, 0 in flight"]);
    }
}
