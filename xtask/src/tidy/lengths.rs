//! The lengths of files and functions.

use std::path::Path;

use super::Violation;
use super::files::File;
use super::source;

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// Extensions of files that hold code.
const CODE: [&str; 5] = ["c", "h", "py", "rs", "sh"];

/// A file that is too long.
pub fn file(file: &File) -> Option<Violation> {
    let line_count = file.text.lines().count();
    let is_code = CODE.contains(&file.extension());
    (is_code && line_count > FILE_LINES_MAX).then(|| {
        let what = format!("{line_count} lines, more than {FILE_LINES_MAX}");
        Violation::new(file.path.display().to_string(), what)
    })
}

/// Functions that are too long, from `fn` to the closing brace. Takes code without comments and
/// literals.
pub fn functions(path: &Path, code: &str) -> Vec<Violation> {
    source::word_positions(code, "fn")
        .filter_map(|at| {
            let (name, line_count) = function(&code[at..])?;
            (line_count > FUNCTION_LINES_MAX).then(|| {
                let what =
                    format!("fn {name} has {line_count} lines, more than {FUNCTION_LINES_MAX}");
                Violation::at(path, source::line_index(code, at), what)
            })
        })
        .collect()
}

/// The name and the number of lines of the function that starts here; `None` for a type (`fn(u8)`)
/// and a declaration.
fn function(code: &str) -> Option<(&str, usize)> {
    let rest = code[2..].trim_start();
    let name_bytes = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let name = Some(&rest[..name_bytes]).filter(|name| !name.is_empty())?;
    let (mut depth, mut is_body) = (0, false);
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => {
                is_body |= depth == 0 && byte == b'{';
                depth += 1;
            }
            b')' | b']' | b'}' => depth -= 1,
            b';' if depth == 0 => return None,
            _ => continue,
        }
        if is_body && depth == 0 {
            return Some((name, source::line_index(code, at) + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn found(text: &str) -> Vec<Violation> {
        functions(Path::new("a.rs"), &source::code_only(text))
    }

    #[test]
    fn a_function_of_71_lines_is_found_and_one_of_70_is_not() {
        let body = "    x();\n";
        let long = format!("struct A;\nfn long(a: [u8; 4]) {{\n{}}}\n", body.repeat(69));
        let violations = found(&long);
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].to_string(), "a.rs:2: fn long has 71 lines, more than 70");
        let fits = format!("fn fits() {{\n{}}}\n", body.repeat(68));
        assert_eq!(found(&fits), []);
    }

    #[test]
    fn declarations_types_and_braces_in_literals_count_for_nothing() {
        let text = format!(
            "trait T {{ fn declared(&self, f: fn(u8) -> u8); }}\n{}fn short() {{ f(\"{{\") }}\n{}",
            "\n".repeat(80),
            "\n".repeat(80)
        );
        assert_eq!(found(&text), []);
    }

    #[test]
    fn a_file_of_501_lines_is_found_unless_it_is_prose() {
        let of = |path: &str, line_count| {
            let text = "line\n".repeat(line_count);
            file(&File { path: PathBuf::from(path), text })
        };
        assert!(of("a.rs", 501).is_some());
        assert!(of("shim.c", 501).is_some());
        assert_eq!(of("a.rs", 500), None);
        assert_eq!(of("README.md", 900), None);
    }
}
