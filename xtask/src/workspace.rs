//! The workspace as `cargo metadata` describes it.

use std::env;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::Failure;
use crate::process;

/// The workspace's packages, and the folders it stands in.
#[derive(Deserialize)]
pub struct Workspace {
    /// Its members.
    pub packages: Vec<Package>,
    /// The folder of the root manifest.
    pub workspace_root: PathBuf,
    /// Where cargo builds, `CARGO_TARGET_DIR` respected.
    pub target_directory: PathBuf,
}

/// A member of the workspace.
#[derive(Deserialize)]
pub struct Package {
    /// Its name, with the prefix.
    pub name: String,
    /// What it says of itself.
    pub description: Option<String>,
    /// Its `Cargo.toml`.
    pub manifest_path: PathBuf,
    /// All it depends on, tests and builds included.
    pub dependencies: Vec<Dependency>,
    /// What it builds.
    pub targets: Vec<Target>,
}

/// One line of a package's dependencies.
#[derive(Deserialize)]
pub struct Dependency {
    /// The package depended on.
    pub name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub kind: Option<String>,
    /// Where it stands, for a member of the workspace.
    pub path: Option<PathBuf>,
}

/// A library, program, test or bench of a package.
#[derive(Deserialize)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// `lib`, `bin`, `test`, `bench`, …
    pub kind: Vec<String>,
    /// Its root source file.
    pub src_path: PathBuf,
}

impl Workspace {
    /// Reads the metadata and makes the workspace's root the current folder, so that a task may be
    /// started from any folder inside.
    pub fn enter() -> Result<Self, Failure> {
        let metadata = process::output(&mut process::cargo(&[
            "metadata",
            "--no-deps",
            "--format-version=1",
            "--quiet",
        ]))?;
        let workspace: Self = serde_json::from_str(&metadata)
            .map_err(|error| Failure::failed(format!("cargo metadata is not as known: {error}")))?;
        env::set_current_dir(&workspace.workspace_root)
            .map_err(Failure::file("can't enter", &workspace.workspace_root))?;
        Ok(workspace)
    }

    /// The program that `cargo build --release` made.
    pub fn release_program(&self, name: &str) -> PathBuf {
        self.target_directory.join("release").join(name)
    }
}

impl Package {
    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }
}

impl Target {
    /// Whether it is of this kind (`lib`, `bin`, `test`, `bench`).
    pub fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|of| of == kind)
    }
}
