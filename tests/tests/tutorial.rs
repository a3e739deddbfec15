//! Follows the tutorial from scratch: pastes its blocks in order, runs its commands.

use hotloop_tests::tool;
use std::fs;
use std::path::{Path, PathBuf};

const TUTORIAL: &str = include_str!("../../docs/tutorial.md");

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

/// Runs the commands in `folder` and returns their final folder.
fn run(folder: &Path, commands: &[&str], printed: &[&str]) -> PathBuf {
    let script = format!("exec 2>&1\n{}\necho \"folder: $PWD\"", commands.join("\n"));
    let mut shell = tool("bash").unwrap();
    // The registry was read when hotloop was built. Nobody debugs these programs.
    shell
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_PROFILE_DEV_DEBUG", "none")
        .env_remove("CARGO_TARGET_DIR");
    let output =
        shell.args(["-ec", &script]).current_dir(folder).output().expect("there is a bash");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{commands:?} fails:\n{text}");
    for expected in printed {
        assert!(text.contains(expected), "{commands:?} does not print {expected:?}:\n{text}");
    }
    let folder = text.lines().rev().find_map(|line| line.strip_prefix("folder: "));
    PathBuf::from(folder.expect("the last line of the script"))
}

#[test]
fn the_blocks_pasted_in_order_are_a_nat_that_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let home = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(root, home.path().join("hotloop")).expect("a link to the clone");
    let mut folder = home.path().to_owned();
    let mut test_count = 0;
    for block in blocks(TUTORIAL) {
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
    assert_eq!(test_count, 3);
}

/// Lets a project use the build artefacts of hotloop's own tests, so that it takes seconds.
fn share_target(project: &Path) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("where cargo builds");
    let link = project.join("target");
    if !link.exists() {
        std::os::unix::fs::symlink(target, link).expect("a link to what is built");
    }
}

#[test]
fn blocks_are_read_as_they_stand() {
    let page =
        "Put this\ninto `a.rs`:\n\n```rust\nfn a() {}\n```\n\n```console\n$ one\n  two\n```\n";
    let file = Block::File("a.rs", "fn a() {}\n".into());
    assert_eq!(blocks(page), [file, Block::Commands(vec!["one"], vec!["  two"])]);
}
