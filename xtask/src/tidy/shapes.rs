//! Shapes of sentences that a native reader has to read twice, in the comments of Rust files.

use super::Violation;
use super::files::File;
use super::source;

/// A shape, and how to rewrite it.
struct Shape {
    /// Any of these words, in lower case unless they begin a sentence.
    words: &'static [&'static str],
    /// Whether the words count only at the beginning of a sentence that is no question.
    begins_sentence: bool,
    advice: &'static str,
}

const SHAPES: [Shape; 6] = [
    Shape {
        words: &["What"],
        begins_sentence: true,
        advice: "name the thing (\"Bytes sent.\" for \"What is sent.\")",
    },
    Shape {
        words: &["Where"],
        begins_sentence: true,
        advice: "write `if` or `when`, or name the place (\"Offset of\", \"The folder of\")",
    },
    Shape {
        words: &["none where", "none if"],
        begins_sentence: false,
        advice: "write \"`None` if\", or name the empty value",
    },
    Shape {
        words: &["so many", "as many"],
        begins_sentence: false,
        advice: "name the number (\"`count` items\", \"up to `max`\", \"the number of\")",
    },
    Shape {
        words: &["by which", "of which", "from which"],
        begins_sentence: false,
        advice: "put the verb first, or write two sentences",
    },
    Shape {
        words: &["says", "said"],
        begins_sentence: false,
        advice: "write what happens: reports, returns, sets, requires, claims",
    },
];

/// Phrases that have one of the words, and are English all the same.
const ALLOWED: [&str; 4] = [
    // A pronoun that picks one of several: the verb follows at once.
    "each of which",
    "first of which",
    "last of which",
    "one of which",
];

/// A paragraph of a comment, without its markers and with inline code blanked.
#[derive(Default)]
struct Paragraph {
    text: String,
    /// Each of its lines: the position in `text`, and the number in the file, from 0.
    lines: Vec<(usize, usize)>,
}

/// Checks the comments of one Rust file.
pub fn check(file: &File) -> Vec<Violation> {
    let mut violations = Vec::new();
    for paragraph in paragraphs(&file.text) {
        for shape in &SHAPES {
            for (at, word) in shape.positions(&paragraph.text) {
                let what = format!("`{word}` in a comment: {}", shape.advice);
                violations.push(Violation::at(&file.path, paragraph.line_index(at), what));
            }
        }
    }
    violations
}

impl Shape {
    /// The places of the shape in a paragraph, each with the word found.
    fn positions<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (usize, &'static str)> + 'a {
        self.words.iter().flat_map(move |word| {
            source::word_positions(text, word)
                .filter(|at| !self.begins_sentence || begins_statement(text, *at))
                .filter(|at| !is_allowed(text, *at, word))
                .map(|at| (at, *word))
        })
    }
}

impl Paragraph {
    fn line_index(&self, at: usize) -> usize {
        let after = self.lines.partition_point(|(start, _)| *start <= at);
        self.lines[after.saturating_sub(1)].1
    }

    fn push(&mut self, line: &str, line_index: usize) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.lines.push((self.text.len(), line_index));
        self.text.push_str(line);
    }

    /// Blanks inline code, byte by byte so that positions stay.
    fn finish(mut self) -> Self {
        let mut is_code = false;
        let blanked = self.text.chars().map(|character| {
            is_code ^= character == '`';
            let is_kept = !is_code && character != '`';
            if is_kept { character.to_string() } else { "_".repeat(character.len_utf8()) }
        });
        self.text = blanked.collect();
        self
    }
}

/// The paragraphs and list items of a file's comments. Blocks of code are left out.
fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut all = vec![Paragraph::default()];
    let (mut is_fenced, mut next) = (false, None);
    for (at, comment) in source::line_comments(text) {
        let line_index = source::line_index(text, at);
        let before = text[..at].rsplit('\n').next().unwrap_or("");
        let body = comment.trim_start_matches(['/', '!']).trim();
        // A comment after code is a paragraph of its own.
        let goes_on = next == Some((line_index, before));
        next = before.trim().is_empty().then_some((line_index + 1, before));
        is_fenced &= goes_on;
        let item = body.strip_prefix("- ");
        if !goes_on || is_fenced || body.is_empty() || body.starts_with("```") || item.is_some() {
            all.push(Paragraph::default());
        }
        if body.starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced && let Some(paragraph) = all.last_mut() {
            paragraph.push(item.unwrap_or(body), line_index);
        }
    }
    all.into_iter().filter(|paragraph| !paragraph.text.is_empty()).map(Paragraph::finish).collect()
}

/// Whether a sentence begins here that is no question.
fn begins_statement(text: &str, at: usize) -> bool {
    let begins = at == 0 || [". ", "! ", "? "].iter().any(|end| text[..at].ends_with(end));
    let rest = &text[at..];
    let ends = [". ", "! ", "? "].iter().filter_map(|end| rest.find(end)).min();
    let sentence = ends.map_or(rest, |end| &rest[..=end]);
    begins && !sentence.ends_with('?')
}

/// Whether these words are part of an allowed phrase.
fn is_allowed(text: &str, at: usize, words: &str) -> bool {
    ALLOWED.iter().any(|phrase| {
        let mut places = text.match_indices(phrase);
        places.any(|(start, _)| start <= at && at + words.len() <= start + phrase.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines, from 1, of the violations in a file of a checked folder.
    fn found(text: &str) -> Vec<usize> {
        let violations = check(&File { path: "xtask/a.rs".into(), text: text.to_owned() });
        let line = |violation: &Violation| {
            violation.to_string().split(':').nth(1).and_then(|line| line.parse().ok())
        };
        violations.iter().filter_map(line).collect()
    }

    #[test]
    fn what_as_a_noun_is_found() {
        assert_eq!(found("/// What is sent.\n/// More. What\n/// leaves of a hash."), [1, 2]);
        assert_eq!(found("// - a\n// - What remains.\n"), [2]);
        assert!(found("/// What is sent? See what `What is` does.\n/// Whatever.\n").is_empty());
    }

    #[test]
    fn where_as_a_condition_is_found() {
        assert_eq!(found("// Where there is none, nothing happens.\n"), [1]);
        assert!(found("// The place where it is. Where is it?\n").is_empty());
    }

    #[test]
    fn none_with_a_condition_is_found() {
        assert_eq!(found("/// The row, none where it is empty; or none\n/// if so.\n"), [1, 1]);
        assert!(found("/// `None` if there is none. None of them, if so.\n").is_empty());
    }

    #[test]
    fn quantities_without_a_number_are_found() {
        assert_eq!(found("fn f() {} // so many rows, and as many columns\n"), [1, 1]);
        assert!(found("// That many rows. `as many` is a phrase.\n").is_empty());
    }

    #[test]
    fn clauses_with_a_late_verb_are_found() {
        assert_eq!(found("// a name by which, of which and from which\n"), [1, 1, 1]);
        assert!(found("// a name under which it is known, which is\n").is_empty());
    }

    #[test]
    fn speaking_things_are_found() {
        assert_eq!(found("//! The header says\n//! what was said before.\n"), [1, 2]);
        assert!(found("//! An essay, `said`, unsaid.\n").is_empty());
    }

    #[test]
    fn only_comments_count() {
        assert!(found("let text = \"// What is sent.\";\n").is_empty());
        assert_eq!(found("/// ```\n/// // What is sent.\n/// ```\n/// What is sent.\n"), [4]);
    }
}
