//! That every package says what it is: a description, and a page at the head of its code.

use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::workspace::{Package, Workspace};

use super::Violation;

/// The least that the page of a library says.
const PAGE_LINES_MIN: usize = 5;

/// Checks every package.
pub fn check(workspace: &Workspace) -> Result<Vec<Violation>, Failure> {
    let mut violations = Vec::new();
    for package in &workspace.packages {
        violations.extend(description(package));
        let is_library = package.folder().starts_with(workspace.workspace_root.join("crates"));
        let roots = package.targets.iter().filter(|target| target.is("lib") || target.is("bin"));
        for root in roots {
            let text = fs::read_to_string(&root.src_path)
                .map_err(Failure::file("can't read", &root.src_path))?;
            let path = root.src_path.strip_prefix(&workspace.workspace_root);
            violations.extend(page(path.unwrap_or(&root.src_path), &text, is_library));
        }
    }
    Ok(violations)
}

fn description(package: &Package) -> Option<Violation> {
    let is_described = package.description.as_ref().is_some_and(|text| !text.trim().is_empty());
    (!is_described).then(|| Violation::new(&package.name, "has no description"))
}

/// A program's first line says what it does; a library has a page with an example.
fn page(path: &Path, text: &str, is_library: bool) -> Option<Violation> {
    let page: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
    let what = if page.is_empty() {
        "begins with no `//!` that says what it is"
    } else if is_library && page.len() < PAGE_LINES_MIN {
        "its page is too short to say what it is, what it promises and what it doesn't"
    } else if is_library && !page.iter().any(|line| line.contains("```")) {
        "its page has no example"
    } else {
        return None;
    };
    Some(Violation::at(path, 0, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(text: &str, is_library: bool) -> Option<String> {
        page(Path::new("lib.rs"), text, is_library).map(|violation| violation.what)
    }

    #[test]
    fn a_library_without_its_page_is_found() {
        let page = "//! A ring.\n//!\n//! ```\n//! ring();\n//! ```\n\nmod ring;\n";
        assert_eq!(what(page, true), None);
        assert!(what("mod ring;\n//! Late.\n", true).unwrap().contains("begins with no"));
        assert!(what("//! Stub.\n", true).unwrap().contains("too short"));
        assert!(what(&page.replace("```", ""), true).unwrap().contains("no example"));
    }

    #[test]
    fn a_program_says_what_it_does_in_a_line() {
        assert_eq!(what("//! Forwards.\nfn main() {}\n", false), None);
        assert!(what("fn main() {}\n", false).is_some());
    }

    #[test]
    fn a_package_without_a_description_is_found() {
        let package = |description: &str| -> Package {
            let json = format!(
                r#"{{"name": "a", "description": {description}, "manifest_path": "/w/Cargo.toml",
                    "dependencies": [], "targets": []}}"#
            );
            serde_json::from_str(&json).unwrap()
        };
        assert_eq!(description(&package("\"A ring\"")), None);
        assert!(description(&package("null")).is_some());
        assert!(description(&package("\" \"")).is_some());
    }
}
