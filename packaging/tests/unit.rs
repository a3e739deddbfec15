//! Checks the unit with systemd's own tools.

use hotloop_test_tools::tool;
use std::fs;
use std::path::PathBuf;
use std::process::Output;

/// The highest allowed score of `systemd-analyze security`, in tenths: 0 is closed, 100 open. The
/// network, /proc and devices remain open, as the program needs them.
const EXPOSURE_TENTHS_MAX: u32 = 28;

/// The unit's instance `x`, with an existing program instead of the packaged one.
struct Unit {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Unit {
    fn with(change: impl FnOnce(String) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/ipip-lb@.service");
        let text = fs::read_to_string(source).unwrap();
        let program = env!("CARGO_BIN_EXE_hotloop-packaging");
        let path = folder.path().join("ipip-lb@x.service");
        fs::write(&path, change(text.replace("/usr/bin/ipip-lb", program))).unwrap();
        Self { _folder: folder, path }
    }

    fn analyze(&self, words: &[&str]) -> Output {
        tool("systemd-analyze").unwrap().args(words).arg(&self.path).output().unwrap()
    }

    fn complaints(&self) -> String {
        let output = self.analyze(&["verify", "--man=no"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // The output also lists problems of other units of this machine.
        errors.lines().filter(|line| line.contains("ipip-lb@")).collect()
    }
}

#[test]
fn systemd_understands_every_line() {
    if let Err(why) = tool("systemd-analyze") {
        return println!("skipped: {why}");
    }
    assert_eq!(Unit::with(|text| text).complaints(), "");
    let broken = Unit::with(|text| text.replace("WatchdogSec=10", "WatchdogSec=soon"));
    assert!(broken.complaints().contains("Failed to parse"), "{}", broken.complaints());
}

#[test]
fn the_service_is_exposed_no_more_than_it_needs() {
    if let Err(why) = tool("systemd-analyze") {
        return println!("skipped: {why}");
    }
    let threshold = format!("--threshold={EXPOSURE_TENTHS_MAX}");
    let security = ["security", "--offline=yes", "--no-pager", threshold.as_str()];
    let output = Unit::with(|text| text).analyze(&security);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    let open = Unit::with(|text| text.replace("SystemCallFilter=@system-service\n", ""));
    assert!(!open.analyze(&security).status.success());
}
