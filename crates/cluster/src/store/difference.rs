//! The difference of two revisions, for an operator.

use super::error::StoreError;
use super::etcd::Etcd;
use super::layout::{self, Stored};
use std::fmt::Write;

/// Maximum number of lines to show of each text.
const LINES_MAX: usize = 40;

/// The difference between one revision and the revision in force, and the number of the latter.
///
/// # Errors
/// The store's error.
pub fn changes(etcd: &Etcd, from: i64) -> Result<(String, i64), StoreError> {
    let of = |stored: Option<Stored>| {
        stored.map_or((0, String::new()), |stored| (stored.revision, stored.text))
    };
    let (revision, new) = of(layout::read(etcd)?.stored);
    let new_name = format!("revision {revision}");
    let old = match from {
        0 => Ok(String::new()),
        from => layout::read_at(etcd, from).map(|read| of(read.stored).1),
    };
    let changes = match old {
        Ok(old) => difference((&format!("revision {from}"), &old), (&new_name, &new)),
        // The revision was compacted, or never existed.
        Err(_) => {
            format!("revision {from} is not kept; `ipip-lb cluster show` prints {revision}\n")
        }
    };
    Ok((changes, revision))
}

/// The difference of two texts, each with its name: all lines from the first that differs to the
/// last.
fn difference(old: (&str, &str), new: (&str, &str)) -> String {
    let (old_lines, new_lines): (Vec<_>, Vec<_>) =
        (old.1.lines().collect(), new.1.lines().collect());
    let is_same = |(one, other): &(&&str, &&str)| one == other;
    let before = old_lines.iter().zip(&new_lines).take_while(is_same).count();
    let (old_rest, new_rest) = (&old_lines[before..], &new_lines[before..]);
    let after = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(is_same).count();
    let mut text = format!("--- {}\n+++ {}\n@@ from line {}\n", old.0, new.0, before + 1);
    for (sign, lines) in [('-', old_rest), ('+', new_rest)] {
        let lines = &lines[..lines.len() - after];
        for line in lines.iter().take(LINES_MAX) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{sign}{line}");
        }
        if lines.len() > LINES_MAX {
            let _ = writeln!(text, "{sign}… and {} more lines", lines.len() - LINES_MAX);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_shown_and_what_is_the_same_is_not() {
        let differ = |old, new| difference(("old", old), ("new", new));
        let expected = "--- old\n+++ new\n@@ from line 2\n-b\n-c\n+B\n";
        assert_eq!(differ("a\nb\nc\nd\n", "a\nB\nd\n"), expected);
        assert_eq!(differ("a\na\n", "a\n"), "--- old\n+++ new\n@@ from line 2\n-a\n");
        assert_eq!(differ("", "a"), "--- old\n+++ new\n@@ from line 1\n+a\n");
        let long = differ("", &"x\n".repeat(100));
        assert!(long.ends_with("+x\n+… and 60 more lines\n"), "{long}");
        assert_eq!(long.lines().count(), 44);
    }
}
