//! Follows the tutorial, and the page on own commands, from scratch: pastes their blocks in order,
//! and runs their commands.

use crate::project::{home, run, share_target};
use std::fs;

const TUTORIAL: &str = include_str!("../../docs/tutorial.md");
const COMMANDS: &str = include_str!("../../docs/commands.md");

/// A block of the page.
#[derive(Debug, PartialEq)]
enum Block<'a> {
    /// A file, named by the sentence before it.
    File(&'a str, String),
    /// Commands, and parts of their output.
    Commands(Vec<&'a str>, Vec<&'a str>),
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut before) = (Vec::new(), "");
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let body = |lines: &mut std::str::Lines<'_>| {
            lines.take_while(|line| *line != "```").map(|line| line.to_owned() + "\n").collect()
        };
        match line {
            "```rust" => blocks.push(Block::File(named(before), body(&mut lines))),
            "```console" => {
                let (commands, printed): (Vec<_>, Vec<_>) = lines
                    .by_ref()
                    .take_while(|line| *line != "```")
                    .partition(|l| l.starts_with("$ "));
                let commands = commands.into_iter().map(|line| &line[2..]).collect();
                blocks.push(Block::Commands(commands, printed));
            }
            "" => {}
            _ => before = line,
        }
    }
    blocks
}

/// The file that a sentence names at its end: "Put this into `src/main.rs`:"
fn named(sentence: &str) -> &str {
    let name = sentence.strip_suffix("`:").and_then(|rest| rest.rsplit('`').next());
    name.unwrap_or_else(|| panic!("no file is named before a block: {sentence}"))
}

#[test]
fn the_blocks_pasted_in_order_are_a_nat_that_works() {
    assert_eq!(follow(TUTORIAL), 3);
}

#[test]
fn the_blocks_on_own_commands_are_a_gate_that_works() {
    assert_eq!(follow(COMMANDS), 0);
}

/// Does everything on a page. Returns the number of times that it runs tests.
fn follow(page: &str) -> usize {
    let home = home();
    let mut folder = home.path().to_owned();
    let mut test_count = 0;
    for block in blocks(page) {
        match block {
            Block::File(name, text) => {
                let path = folder.join(name);
                fs::create_dir_all(path.parent().expect("a folder of the project")).unwrap();
                fs::write(path, text).unwrap();
            }
            Block::Commands(commands, printed) => {
                test_count += commands.iter().filter(|command| **command == "cargo test").count();
                folder = run(&folder, &commands, &printed);
                share_target(&folder);
            }
        }
    }
    test_count
}

#[test]
fn blocks_are_read_as_they_stand() {
    let page =
        "Put this\ninto `a.rs`:\n\n```rust\nfn a() {}\n```\n\n```console\n$ one\n  two\n```\n";
    let file = Block::File("a.rs", "fn a() {}\n".into());
    assert_eq!(blocks(page), [file, Block::Commands(vec!["one"], vec!["  two"])]);
}
