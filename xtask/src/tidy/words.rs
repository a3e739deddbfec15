//! Text that may not be left in a file: notes, unfinished code, paths of one machine, the address of
//! another registry, and phrases that are not plain English.

use super::Violation;
use super::files::File;
use super::source;

/// Notes, as whole words in any file. They are split so that this file does not contain them.
const NOTES: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

/// Macros for missing code.
const UNFINISHED: [&str; 2] = [concat!("todo", "!("), concat!("unimplemented", "!(")];

/// Folders of one machine, and of what is not in the repository.
const PATHS: [&str; 4] =
    [concat!("../", "shared"), concat!("/", "work/"), concat!("/", "root/"), concat!("/", "home/")];

/// Phrases that may not stand in Rust or Markdown, in lower case, as whole words.
const PHRASES: [&str; 14] = [
    concat!("there", "of"),
    concat!("where", "of"),
    concat!("when", "ce"),
    concat!("whoso", "ever"),
    concat!("who", "m"),
    concat!("to", "ld"),
    concat!("gives", " on"),
    concat!("gave", " on"),
    concat!("given", " on"),
    concat!("thousand", " million"),
    concat!("idle", " time"),
    concat!("idle", " times"),
    concat!("cul", "prit"),
    concat!("inqui", "ry"),
];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks one file, line by line.
pub fn check(file: &File) -> Vec<Violation> {
    let has_word = |line: &str, word| source::word_positions(line, word).next().is_some();
    let is_prose = ["md", "rs"].contains(&file.extension());
    let mut violations = Vec::new();
    for (line_index, line) in file.text.lines().enumerate() {
        let mut found = |what: String| violations.push(Violation::at(&file.path, line_index, what));
        for note in NOTES.iter().filter(|note| has_word(line, note)) {
            found(format!("{note} is left"));
        }
        for call in UNFINISHED.iter().filter(|call| line.contains(**call)) {
            found(format!("{call}) is left"));
        }
        for path in PATHS.iter().filter(|path| has_path(line, path)) {
            found(format!("a path of one machine: {path}"));
        }
        let lower = if is_prose { line.to_lowercase() } else { String::new() };
        for phrase in PHRASES.iter().filter(|phrase| has_word(&lower, phrase)) {
            found(format!("write `{phrase}` in plain words"));
        }
        if names_other_registry(file, line.trim()) {
            found("another registry than crates.io".into());
        }
    }
    violations
}

/// Whether a path begins here: a folder of the same name deeper down is another one.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || "._-}".contains(before))
    })
}

fn names_other_registry(file: &File, line: &str) -> bool {
    match file.extension() {
        "lock" => line.contains("registry+") && !line.contains(CRATES_IO),
        "toml" => {
            let starts = ["[source.", "[registries", "[registry", "registry ="];
            starts.iter().any(|start| line.starts_with(start)) || line.contains("replace-with")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&File { path: path.into(), text: text.to_owned() }).len()
    }

    #[test]
    fn what_is_planted_is_found() {
        for planted in NOTES.iter().chain(&UNFINISHED).chain(&PHRASES).chain(&PATHS) {
            assert_eq!(found("a.rs", &format!("ok\n// `{planted}` later\n")), 1, "{planted}");
        }
        for path in PATHS {
            assert_eq!(found("a.md", &format!("see https://a.org/b{path}x")), 0, "{path}");
        }
        assert_eq!(found("a.md", &PHRASES[0].to_uppercase()), 1);
        assert_eq!(found("a.txt", PHRASES[0]), 0);
        assert_eq!(found("a.rs", "mastodon METHODOLOGY"), 0);
        let file = File { path: "a.rs".into(), text: format!("one\ntwo {}\n", NOTES[0]) };
        assert!(check(&file)[0].to_string().starts_with("a.rs:2: "));
    }

    #[test]
    fn other_registries_are_found() {
        assert_eq!(found("Cargo.lock", &format!("source = \"{CRATES_IO}\"")), 0);
        assert_eq!(found("Cargo.lock", "source = \"registry+https://mirror.example/\""), 1);
        assert_eq!(found(".cargo/config.toml", "[source.crates-io]"), 1);
        assert_eq!(found("Cargo.toml", "registry = \"mine\""), 1);
    }
}
