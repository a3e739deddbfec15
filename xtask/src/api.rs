//! The public items of the facade and of the crates that it re-exports, as kept in the repository:
//! a change of the API is a change of a file that a reviewer sees.
//!
//! rustdoc writes the items as JSON, in a format that goes with the compiler's version.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use public_api::Builder;
use serde::Deserialize;

use crate::failure::Failure;
use crate::process::{self, cargo};
use crate::workspace::Workspace;

/// The folder of the kept lists, one for each crate.
const KEPT_FOLDER: &str = "crates/hotloop/api";

const FACADE: &str = "hotloop";

/// Set for the process that cargo starts in place of rustdoc.
const AS_RUSTDOC: &str = "HOTLOOP_XTASK_AS_RUSTDOC";

/// The version of rustdoc's format that `public-api` reads.
const FORMAT: u32 = 57;

/// Writes the lists into the repository.
pub fn keep(workspace: &Workspace) -> Result<(), Failure> {
    let folder = workspace.workspace_root.join(KEPT_FOLDER);
    fs::create_dir_all(&folder).map_err(Failure::file("make", &folder))?;
    let mut sum = 0;
    for (name, file) in describe(workspace)? {
        let list = list(&file)?;
        let kept = folder.join(format!("{name}.txt"));
        fs::write(&kept, &list).map_err(Failure::file("write", &kept))?;
        let count = item_count(&list);
        sum += count;
        println!("{count:>6} {name}");
    }
    println!("{sum:>6} public items, kept in {KEPT_FOLDER}");
    Ok(())
}

/// Compares the items with the kept lists. Returns the reason if the items can't be read here.
pub fn check(workspace: &Workspace) -> Result<Option<String>, Failure> {
    let files = describe(workspace)?;
    for file in files.values() {
        let format = format_of(file)?;
        if format != FORMAT {
            return Ok(Some(format!("rustdoc writes JSON of format {format} here, not {FORMAT}")));
        }
    }
    let folder = workspace.workspace_root.join(KEPT_FOLDER);
    let mut differences = String::new();
    for (name, file) in &files {
        let kept = fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap_or_default();
        differences += &difference(&kept, &list(file)?);
    }
    if differences.is_empty() {
        return Ok(None);
    }
    Err(Failure::failed(format!(
        "public items differ from {KEPT_FOLDER}:\n{differences}If the change is meant, describe it \
         in CHANGELOG.md, run `cargo xtask api` and commit the files with it"
    )))
}

/// Becomes rustdoc, with JSON as output, if [`describe`] had cargo start this program for that.
pub fn become_rustdoc() -> Option<ExitCode> {
    env::var_os(AS_RUSTDOC)?;
    let mut rustdoc = Command::new("rustdoc");
    // The compiler is a stable one, and JSON is not a stable output. Cargo must not see the
    // variable: it would build all dependencies anew.
    rustdoc.env("RUSTC_BOOTSTRAP", "1").args(env::args_os().skip(1));
    let error = rustdoc.args(["-Z", "unstable-options", "--output-format", "json"]).exec();
    eprintln!("rustdoc can't be started: {error}");
    Some(ExitCode::FAILURE)
}

/// Has rustdoc describe the facade and the crates that it re-exports. Returns the files, by crate.
fn describe(workspace: &Workspace) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let facade = workspace.packages.iter().find(|package| package.name == FACADE);
    let facade = facade.ok_or_else(|| Failure::failed(format!("there is no crate {FACADE}")))?;
    let parts = facade.dependencies.iter().filter(|its| its.kind.is_none() && its.path.is_some());
    let names: Vec<_> =
        parts.map(|part| &part.name).chain([&facade.name]).map(String::as_str).collect();
    let program = env::current_exe().map_err(Failure::file("find", Path::new("this program")))?;
    let mut command = cargo(&["doc", "--no-deps", "--lib", "--quiet"]);
    // Cargo ignores `hotloop/ops` and the like when several packages are named.
    command.args(["--features", "ops,serde,testing"]);
    command.args(names.iter().flat_map(|name| ["--package", name]));
    process::run(command.env("RUSTDOC", program).env(AS_RUSTDOC, "1"))?;
    let file = |name: &str| {
        let json = format!("doc/{}.json", name.replace('-', "_"));
        (name.to_owned(), workspace.target_directory.join(json))
    };
    Ok(names.into_iter().map(file).collect())
}

/// The version of a description's format.
fn format_of(file: &Path) -> Result<u32, Failure> {
    #[derive(Deserialize)]
    struct Description {
        format_version: u32,
    }
    let text = fs::read(file).map_err(Failure::file("read", file))?;
    let description: Description = serde_json::from_slice(&text)
        .map_err(|error| Failure::failed(format!("{} can't be read: {error}", file.display())))?;
    Ok(description.format_version)
}

/// The public items of a described crate, a line each.
fn list(file: &Path) -> Result<String, Failure> {
    let builder = Builder::from_rustdoc_json(file)
        .sorted(true)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true);
    let items = builder
        .build()
        .map_err(|error| Failure::failed(format!("{} can't be read: {error}", file.display())))?;
    Ok(items.to_string())
}

/// The number of items in a list: lines that begin with `impl` belong to the items after them.
fn item_count(list: &str) -> usize {
    list.lines().filter(|line| !line.starts_with("impl")).count()
}

/// The lines that only one of two lists has.
fn difference(kept: &str, now: &str) -> String {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (kept, now) = (lines(kept), lines(now));
    let gone = kept.difference(&now).map(|line| format!("- {line}\n"));
    let new = now.difference(&kept).map(|line| format!("+ {line}\n"));
    gone.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_items_that_only_one_list_has() {
        let (kept, now) = ("pub fn a()\npub fn b()\n", "pub fn b()\nimpl X\npub fn c()\n");
        assert_eq!(difference(kept, now), "- pub fn a()\n+ impl X\n+ pub fn c()\n");
        assert_eq!((difference(now, now).as_str(), item_count(now)), ("", 2));
    }
}
