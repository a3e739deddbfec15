//! Tests start the system's programs in one way, so that missing ones are installed, or the test is
//! skipped.

use super::Violation;
use super::files::File;
use super::source;

const START: &str = "Command::new(";

/// Checks one Rust file; `code` is its text without comments and literals. A test may pass a
/// program's name only to `tool`; other programs that it starts are its own, and have no literal as
/// a name.
pub fn check(file: &File, code: &str) -> Vec<Violation> {
    let tests_at = if file.is_in_tests() { Some(0) } else { code.find("#[cfg(test)]") };
    source::word_positions(code, "Command")
        .filter(|at| tests_at.is_some_and(|tests_at| *at > tests_at))
        .filter(|at| code[*at..].starts_with(START))
        .filter(|at| file.text[*at + START.len()..].trim_start().starts_with('"'))
        .map(|at| {
            let what = "a test starts programs of the system by `tool` of tests/tools";
            Violation::at(&file.path, source::line_index(code, at), what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.into(), text: text.into() };
        let violations = check(&file, &source::code_only(text));
        violations.into_iter().map(|found| found.place).collect()
    }

    #[test]
    fn only_tests_may_not_name_a_program_themselves() {
        let text = "fn a() { Command::new(\"ip\"); }\n#[cfg(test)]\nmod tests {\n\
                    fn b() { std::process::Command::new(\n\"ip\"); }\n}";
        assert_eq!(lines("crates/a/src/b.rs", text), ["crates/a/src/b.rs:4"]);
        for path in ["crates/a/tests/b/mod.rs", "tests/src/b.rs"] {
            assert_eq!(lines(path, text), [format!("{path}:1"), format!("{path}:4")]);
        }
    }

    #[test]
    fn the_projects_own_programs_are_started_by_their_paths() {
        let text = "Command::new(env!(\"CARGO_BIN_EXE_a\")); Command::new(script); MyCommand::new(\"a\");\n\
                    // Command::new(\"ip\")\nlet text = \"Command::new(\\\"ip\\\")\"; tool(\"ip\");";
        assert!(lines("tests/a.rs", text).is_empty());
    }
}
