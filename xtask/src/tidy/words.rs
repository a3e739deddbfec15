//! What must not be left in a file: notes to oneself, unfinished code, one machine's paths, another
//! registry's address.

use super::Violation;
use super::files::File;
use super::source;

/// Notes that belong into an issue, in any file. Put together here so that this file has none.
const NOTES: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

/// Macros that stand for code that isn't there.
const UNFINISHED: [&str; 2] = [concat!("todo", "!("), concat!("unimplemented", "!(")];

/// Folders of one machine, and of what isn't in the repository.
const PATHS: [&str; 4] =
    [concat!("../", "shared"), concat!("/", "work/"), concat!("/", "root/"), concat!("/", "home/")];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks one file, line by line.
pub fn check(file: &File) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (line_index, line) in file.text.lines().enumerate() {
        let mut found = |what: String| violations.push(Violation::at(&file.path, line_index, what));
        for note in NOTES {
            if source::word_positions(line, note).next().is_some() {
                found(format!("{note} is left"));
            }
        }
        for macro_call in UNFINISHED {
            if line.contains(macro_call) {
                found(format!("{macro_call}) is left"));
            }
        }
        for path in PATHS {
            if has_path(line, path) {
                found(format!("a path of one machine: {path}"));
            }
        }
        if names_other_registry(file, line) {
            found("another registry than crates.io".into());
        }
    }
    violations
}

/// A path from its beginning: a folder of the same name deeper down is another one.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || "._-}".contains(before))
    })
}

fn names_other_registry(file: &File, line: &str) -> bool {
    let line = line.trim();
    match file.extension() {
        "lock" => line.contains("registry+") && !line.contains(CRATES_IO),
        "toml" => {
            ["[source.", "[registries", "[registry", "registry ="]
                .iter()
                .any(|start| line.starts_with(start))
                || line.contains("replace-with")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn found(path: &str, text: String) -> usize {
        check(&File { path: PathBuf::from(path), text }).len()
    }

    #[test]
    fn notes_and_unfinished_code_are_found() {
        for planted in NOTES.iter().chain(&UNFINISHED) {
            assert_eq!(found("a.rs", format!("ok\n// {planted}) later\n")), 1, "{planted}");
        }
        assert_eq!(found("a.rs", "mastodon METHODOLOGY".into()), 0);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for planted in PATHS {
            assert_eq!(found("README.md", format!("see `{planted}x`")), 1, "{planted}");
            assert_eq!(
                found("README.md", format!("see https://a.org/b{planted}x")),
                0,
                "{planted}"
            );
        }
    }

    #[test]
    fn other_registries_are_found() {
        assert_eq!(found("Cargo.lock", format!("source = \"{CRATES_IO}\"")), 0);
        assert_eq!(found("Cargo.lock", "source = \"registry+https://mirror.example/\"".into()), 1);
        assert_eq!(found(".cargo/config.toml", "[source.crates-io]".into()), 1);
        assert_eq!(found("Cargo.toml", "registry = \"mine\"".into()), 1);
    }

    #[test]
    fn the_line_is_named() {
        let file = File { path: "a.rs".into(), text: format!("one\ntwo {}\n", NOTES[0]) };
        assert!(check(&file)[0].to_string().starts_with("a.rs:2: "));
    }
}
