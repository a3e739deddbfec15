//! Rust source without comments and literals: enough of a lexer to count braces and find words.

/// The same text with comments and the insides of literals blanked: every line keeps its number and
/// every byte its column.
pub fn code_only(text: &str) -> String {
    let mut blanked = Vec::with_capacity(text.len());
    for (_, token, is_code) in tokens(text) {
        if is_code {
            blanked.extend(token.bytes());
        } else {
            blanked.extend(token.bytes().map(|byte| if byte == b'\n' { b'\n' } else { b' ' }));
        }
    }
    String::from_utf8_lossy(&blanked).into_owned()
}

/// The comments that begin with two slashes, each with its byte position.
pub fn line_comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    tokens(text)
        .filter(|(_, token, is_code)| !is_code && token.starts_with("//"))
        .map(|(at, token, _)| (at, token))
}

/// The byte positions of a whole word.
pub fn word_positions<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = at.checked_sub(1).map(|before| bytes[before]);
        let after = bytes.get(at + word.len()).copied();
        ![before, after].into_iter().flatten().any(is_name_byte)
    })
}

/// The line of a byte position, from 0.
pub fn line_index(code: &str, at: usize) -> usize {
    code.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The tokens of a text, each with its byte position and whether it is code.
fn tokens(text: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        let after_name = at > 0 && is_name_byte(text.as_bytes()[at - 1]);
        let (length_bytes, is_code) = token(rest, after_name);
        at += length_bytes;
        Some((at - length_bytes, &rest[..length_bytes], is_code))
    })
}

/// The length of the first token of `rest`, and whether it is code.
fn token(rest: &str, after_name: bool) -> (usize, bool) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), false);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), false);
    }
    if rest.starts_with('"') {
        return (string(rest), false);
    }
    if rest.starts_with('\'')
        && let Some(length_bytes) = char_literal(rest)
    {
        return (length_bytes, false);
    }
    if !after_name && let Some(length_bytes) = raw_string(rest) {
        return (length_bytes, false);
    }
    (rest.chars().next().map_or(1, char::len_utf8), true)
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut depth = 0;
    let mut at = 0;
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `None` for a lifetime.
fn char_literal(rest: &str) -> Option<usize> {
    let inside = &rest[1..];
    let first = inside.chars().next()?;
    let after = if first == '\\' {
        // The escaped character itself may be a quote.
        let escaped = inside[1..].chars().next()?.len_utf8();
        1 + escaped + inside[1 + escaped..].find('\'')?
    } else {
        first.len_utf8()
    };
    inside[after..].starts_with('\'').then_some(1 + after + 1)
}

/// `r"…"`, `r#"…"#`, with `b` or `c` before them.
fn raw_string(rest: &str) -> Option<usize> {
    let unprefixed = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let hash_count = unprefixed.len() - unprefixed.trim_start_matches('#').len();
    let inside = unprefixed[hash_count..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hash_count));
    let inside_bytes = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(rest.len() - inside.len() + inside_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squeezed(text: &str) -> String {
        code_only(text).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn line_comments_have_their_positions() {
        let found: Vec<_> = line_comments("a(\"// b\"); // c\n/// d").collect();
        assert_eq!(found, [(11, "// c"), (16, "/// d")]);
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        assert_eq!(squeezed("a /* { /* } */ { */ b // }\nc"), "a b c");
        assert_eq!(
            squeezed(r#"a("{ \" }", b"{", '{', '\'', '\u{7b}', b'}') b"#),
            "a( , b , , , , b ) b"
        );
        assert_eq!(squeezed("a(r\"{\", br##\"}\"# {\"##, c) b"), "a( , , c) b");
    }

    #[test]
    fn lifetimes_and_names_that_end_in_r_are_code() {
        let code = "impl<'a> F<'a> for &'a str { fn f(&'a self) { var(\"x\") } }";
        assert_eq!(squeezed(code), "impl<'a> F<'a> for &'a str { fn f(&'a self) { var( ) } }");
    }

    #[test]
    fn lines_and_columns_stay() {
        let text = "a\n/* é\n */ b \"ü\n\" c\n";
        let code = code_only(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.find('b').map(|at| line_index(&code, at)), Some(2));
        assert_eq!(code.find('c').map(|at| line_index(&code, at)), Some(3));
    }

    #[test]
    fn only_whole_words_are_found() {
        let code = "unsafe_code xunsafe unsafe{ unsafe";
        assert_eq!(word_positions(code, "unsafe").collect::<Vec<_>>(), [20, 28]);
    }

    #[test]
    fn what_is_never_closed_ends_with_the_file() {
        for text in ["\"open", "/* open", "r#\"open", "'", "'\\", "b"] {
            assert_eq!(code_only(text).len(), text.len());
        }
    }
}
