//! Excerpts of foreign text, safe to print in a message.

/// The length of an excerpt, in characters.
pub const EXCERPT_CHARS_MAX: usize = 200;

/// The text with all invisible characters escaped: a terminal could take them for a command.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\'' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

/// The text [`escaped`], and cut after [`EXCERPT_CHARS_MAX`] characters, with its length in bytes.
#[must_use]
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        None => escaped(text),
        Some((end, _)) => format!("{}… ({} bytes)", escaped(&text[..end]), text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_what_is_long_is_cut() {
        assert_eq!(excerpt("10.0.0.300 \"Büro\" C:\\x"), "10.0.0.300 \"Büro\" C:\\x");
        assert_eq!(excerpt("\x1b[31m\r\n\t\x7f"), "\\u{1b}[31m\\r\\n\\t\\u{7f}");
        assert_eq!(excerpt("\u{9b}2J \u{202e}"), "\\u{9b}2J \\u{202e}");
        assert_eq!(excerpt(&"ü".repeat(EXCERPT_CHARS_MAX)), "ü".repeat(EXCERPT_CHARS_MAX));
        let long = excerpt(&"ü".repeat(1 << 20));
        assert_eq!(long, format!("{}… (2097152 bytes)", "ü".repeat(EXCERPT_CHARS_MAX)));
    }
}
