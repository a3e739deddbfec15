//! Checks the program's files with man and the shells.

use hotloop_test_tools::tool;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the program and returns the folder with all its files.
fn written() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_hotloop-packaging"))
        .arg(folder.path())
        .env("XDG_RUNTIME_DIR", folder.path())
        .status();
    assert!(status.expect("the program starts").success());
    folder
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", folder.display());
    files
}

#[test]
fn man_has_no_complaints() {
    if let Err(why) = tool("man") {
        return println!("skipped: {why}");
    }
    let folder = written();
    for page in files(&folder.path().join("man")) {
        let mut man = tool("man").unwrap();
        man.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]).arg(&page);
        let output = man.env("MANWIDTH", "80").output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{}: {errors}", page.display());
    }
}

#[test]
fn every_program_and_command_has_a_page_that_says_what_it_does() {
    let folder = written();
    let man = folder.path().join("man");
    let text = |name: &str| fs::read_to_string(man.join(format!("{name}.1"))).unwrap();
    for (name, exit_codes) in
        [("hotloop-top", &["terminal"][..]), ("hotloop-doctor", &["costs speed", "costs safety"])]
    {
        for part in exit_codes {
            assert!(text(name).split("EXIT STATUS").nth(1).unwrap().contains(part), "{name}");
        }
    }
    for name in ["ipip-lb", "ipip-endpoint", "udp-sink", "udp-source"] {
        assert!(text(name).contains("EXIT STATUS"), "{name}");
        assert!(text(&format!("{name}-ctl-status")).contains(".SH NAME"), "{name}");
    }
    assert!(text("ipip-lb").contains("/etc/ipip\\-lb/NAME.toml"));
    assert!(text("ipip-lb-run").contains("\\-\\-workers"));
    // The lines of an example stay apart.
    assert!(text("ipip-endpoint").contains("\n  ip link set tap0 arp off\n"));
    for page in files(&man) {
        // Every page that another page refers to exists.
        for word in fs::read_to_string(&page).unwrap().split_whitespace() {
            if let Some(name) = word.strip_suffix("(1)") {
                let name = name.replace('\\', "");
                assert!(man.join(format!("{name}.1")).exists(), "{}: {name}", page.display());
            }
        }
    }
}

#[test]
fn shells_read_the_completions() {
    let folder = written();
    let completions = folder.path().join("completions");
    for shell in ["bash", "zsh", "fish"] {
        let files = files(&completions.join(shell));
        assert_eq!(files.len(), 6, "{shell}");
        if let Err(why) = tool(shell) {
            println!("skipped: {why}");
            continue;
        }
        for file in files {
            let output = tool(shell).unwrap().arg("-n").arg(&file).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && errors.is_empty(), "{}: {errors}", file.display());
        }
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let folder = written();
    let file = folder.path().join("completions/bash/ipip-lb.bash");
    let complete = |words: &str| {
        let last = words.split(' ').count() - 1;
        let script = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={last}; \
             $(complete -p ipip-lb | sed 's/.*-F \\([^ ]*\\).*/\\1/') ipip-lb \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"; \
             echo \"${{COMPREPLY[@]}}\"",
            file.display()
        );
        let output = tool("bash").unwrap().args(["-c", &script]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(complete("ipip-lb re"), "replay");
    assert_eq!(complete("ipip-lb ctl dr"), "drain");
    assert_eq!(complete("ipip-lb check --dep"), "--deployment");
}
