//! An author's project beside a clone of hotloop.

use hotloop_tests::tool;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder for projects, with a link to the clone.
pub fn home() -> TempDir {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let home = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(root, home.path().join("hotloop")).expect("a link to the clone");
    home
}

/// Runs the commands in `folder` and returns their final folder.
pub fn run(folder: &Path, commands: &[&str], printed: &[&str]) -> PathBuf {
    let script = format!("exec 2>&1\n{}\necho \"folder: $PWD\"", commands.join("\n"));
    let mut shell = tool("bash").unwrap();
    // The registry was read when hotloop was built. Nobody debugs these programs.
    shell
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_PROFILE_DEV_DEBUG", "none")
        .env_remove("CARGO_TARGET_DIR");
    let output =
        shell.args(["-ec", &script]).current_dir(folder).output().expect("there is a bash");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{commands:?} fails:\n{text}");
    for expected in printed {
        assert!(text.contains(expected), "{commands:?} does not print {expected:?}:\n{text}");
    }
    let folder = text.lines().rev().find_map(|line| line.strip_prefix("folder: "));
    PathBuf::from(folder.expect("the last line of the script"))
}

/// Lets a project use the build artefacts of hotloop's own tests, so that it takes seconds.
pub fn share_target(project: &Path) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("where cargo builds");
    let link = project.join("target");
    if !link.exists() {
        std::os::unix::fs::symlink(target, link).expect("a link to what is built");
    }
}
