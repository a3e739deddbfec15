//! The workspace, as `cargo metadata` describes it.

use std::env;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::Failure;
use crate::process;

/// The packages of the workspace, and its folders.
#[derive(Deserialize)]
pub struct Workspace {
    pub packages: Vec<Package>,
    /// The folder of the root manifest.
    pub workspace_root: PathBuf,
    /// The folder that cargo builds in: `CARGO_TARGET_DIR` if set.
    pub target_directory: PathBuf,
}

/// A member of the workspace.
#[derive(Deserialize)]
pub struct Package {
    /// The name, with the prefix.
    pub name: String,
    pub description: Option<String>,
    pub manifest_path: PathBuf,
    /// The dependencies, including those of tests and builds.
    pub dependencies: Vec<Dependency>,
    pub targets: Vec<Target>,
    /// The registries that allow it to be published; `None` for any.
    #[serde(default)]
    publish: Option<Vec<String>>,
}

/// A dependency of a package.
#[derive(Deserialize)]
pub struct Dependency {
    pub name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub kind: Option<String>,
    /// The folder, for a member of the workspace.
    pub path: Option<PathBuf>,
}

/// A library, program, test or bench of a package.
#[derive(Deserialize)]
pub struct Target {
    pub name: String,
    /// `lib`, `bin`, `test`, `bench`, …
    pub kind: Vec<String>,
    pub src_path: PathBuf,
}

impl Workspace {
    /// Reads the metadata, and makes the workspace's root the current folder.
    pub fn enter() -> Result<Self, Failure> {
        let arguments = ["metadata", "--no-deps", "--format-version=1", "--quiet"];
        let metadata = process::output(&mut process::cargo(&arguments))?;
        let workspace: Self = serde_json::from_str(&metadata)
            .map_err(|error| Failure::failed(format!("cargo metadata cannot be read: {error}")))?;
        env::set_current_dir(&workspace.workspace_root)
            .map_err(Failure::file("enter", &workspace.workspace_root))?;
        Ok(workspace)
    }

    /// The path of a program built by `cargo build --release`.
    pub fn release_program(&self, name: &str) -> PathBuf {
        self.target_directory.join("release").join(name)
    }

    /// The innermost package that has a file. `file` is a path from the root.
    pub fn package_of(&self, file: &Path) -> Option<&Package> {
        let path = self.workspace_root.join(file);
        let holds = |package: &&Package| path.starts_with(package.folder());
        let depth = |package: &&Package| package.folder().components().count();
        self.packages.iter().filter(holds).max_by_key(depth)
    }
}

impl Package {
    /// The package's folder.
    pub fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// Whether the package may be published.
    pub fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }
}

impl Target {
    /// Whether the target is of this kind (`lib`, `bin`, `test`, `bench`).
    pub fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|of| of == kind)
    }
}
