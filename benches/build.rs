//! Compiles the peers in C: whole loops over DPDK's ring and hash table, as in a C program, without
//! calls from Rust in between.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

use std::env;
use std::process::Command;

const SOURCES: [&str; 5] =
    ["csrc/forward.c", "csrc/hash.c", "csrc/pipeline.c", "csrc/ring.c", "csrc/sink.c"];

fn main() {
    for file in SOURCES.iter().chain(&["build.rs", "csrc/peers.h", "csrc/work.h"]) {
        println!("cargo:rerun-if-changed={file}");
    }
    // Also tells cargo to link libdpdk.
    if let Err(error) = pkg_config::Config::new().probe("libdpdk") {
        stop(&format!("DPDK's headers are needed: run `cargo xtask setup`.\n{error}"));
    }
    let mut build = cc::Build::new();
    // Optimised as DPDK itself is, whatever the profile.
    build.files(SOURCES).opt_level(3).force_frame_pointer(false);
    for flag in raw_cflags() {
        build.flag(&flag);
    }
    if let Err(error) = build.try_compile("hotloop_benches_peers") {
        stop(&format!("the C peers do not compile.\n{error}"));
    }
}

/// The flags as pkg-config prints them: its parsed form loses `-include rte_config.h` and `-march`.
fn raw_cflags() -> Vec<String> {
    let pkg_config = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    match Command::new(&pkg_config).args(["--cflags", "libdpdk"]).output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
        }
        other => stop(&format!("`{pkg_config} --cflags libdpdk` failed: {other:?}")),
    }
}

/// Ends the build with a message and without a backtrace.
fn stop(message: &str) -> ! {
    eprintln!("\n{message}\n");
    std::process::exit(1)
}
