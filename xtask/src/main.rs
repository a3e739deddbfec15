//! `cargo xtask`: sets up, shows, tests and measures the project. It builds where DPDK is absent, so
//! that it can install it.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a tool of the project's developers: what it prints is all it does"
)]
#![forbid(unsafe_code)]

mod bench;
mod demo;
mod failure;
mod fuzz;
mod instructions;
mod miri;
mod neon;
mod process;
mod rustc;
mod sanitize;
mod setup;
mod skips;
mod soak;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;
use workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about, long_about = None)]
/// Sets up, shows, tests and measures hotloop.
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Find out what is missing to build hotloop, and install it
    ///
    /// Looks for libdpdk >= 22.11 (headers and drivers), pkg-config, a C compiler, libclang and
    /// libpcap. What is missing is installed with apt, dnf, pacman or zypper, through sudo where
    /// that is needed. Where it can't be installed the command to run is printed, and the exit
    /// code is 2.
    Setup {
        /// Also what only benchmarks take (dpdk-testpmd, valgrind)
        #[arg(long)]
        bench: bool,
    },
    /// Run a capture of real traffic through the load balancer, and a UDP source into a UDP sink
    ///
    /// Sets up, builds the examples, runs tests/captures/clients.pcap through ipip-lb in both
    /// deployments, shows what went to which backend and what was dropped why, compares the two
    /// outputs packet by packet, then joins udp-source and udp-sink by a net_memif pair and shows
    /// their rates. Needs neither root, hugepages nor a NIC.
    Demo {
        /// Instead, put ipip-lb between real clients (curl) and real servers (nginx)
        ///
        /// In a network of namespaces and veth pairs: pages from three backends over IPv4 and IPv6,
        /// one killed, one drained, reloads under load, uploads with path-MTU discovery, and whole
        /// ledgers. Needs root and /dev/net/tun; installs nginx, curl, iproute2 and ethtool where
        /// they are missing; leaves nothing behind.
        #[arg(long)]
        live: bool,
    },
    /// Run all that a change can break: formatting, lints, docs, tidy, tests, loom, NEON, sanitizer
    ///
    /// Sets up first. Stops at the first step that fails and says which. A step whose tool this
    /// toolchain lacks is skipped with the reason; where CI=true that is a failure. At the end the
    /// tests are listed that couldn't run here, or not all of them, each with the reason.
    Test,
    /// Run the tests of the crates that hold unsafe code under AddressSanitizer, and Miri where it is
    /// installed
    Sanitize,
    /// Measure one group of benchmarks beside its peers
    ///
    /// Prints a table and writes GROUP.json into target/bench. Exit code 0 when measured,
    /// whatever the figures.
    ///
    /// The group `instructions` has no peers: it counts the instructions of the hot functions
    /// under callgrind, exactly, and keeps the counts in benches/instructions.json by compiler.
    /// With --check it keeps nothing and compares: a count other than kept is exit code 1, and a
    /// compiler that none are kept of is reported, with exit code 0.
    Bench {
        /// The group, as `--list` names it
        #[arg(required_unless_present = "list")]
        group: Option<String>,
        /// Print the groups there are
        #[arg(long)]
        list: bool,
        /// Compare instruction counts with those kept, and keep nothing
        #[arg(long, conflicts_with = "list")]
        check: bool,
        /// Handed to the benchmark, after --
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Look for bytes that break a promise of a target, led by coverage
    ///
    /// The targets are what reads bytes that somebody else wrote: the folders of fuzz/corpus. The
    /// tests run what is kept there again. Installs a C++ compiler where there is none. Exit code 1
    /// where an input fails; it is kept in target/fuzz/failed.
    Fuzz {
        /// The target
        target: String,
        /// How long to look, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        time: u64,
        /// Add the inputs that reached new code to fuzz/corpus, as few as do
        #[arg(long)]
        keep: bool,
    },
    /// Run the load balancer under attacks, reloads, queries and health flaps, for a long time
    ///
    /// Both deployments, half of the packets each, from memory. Ends with one line: packets, how
    /// many are unaccounted for, memory at the start and at the end, and the worst burst. Exit code 1
    /// where a packet is unaccounted for.
    Soak {
        /// How many packets
        #[arg(long, value_name = "N", default_value_t = 1_000_000_000)]
        packets: u64,
    },
    /// Check what the compiler doesn't: the crates' graph, lengths, leftovers, where unsafe stands
    Tidy,
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask: {failure}");
            ExitCode::from(failure.exit_code)
        }
    }
}

fn run(task: Task) -> Result<(), Failure> {
    let workspace = Workspace::enter()?;
    match task {
        Task::Setup { bench } => {
            setup::run(setup::Wanted { testpmd: bench, valgrind: bench, ..Default::default() })
        }
        Task::Demo { live: false } => demo::run(&workspace),
        Task::Demo { live: true } => demo::run_live(&workspace),
        Task::Test => test::run(&workspace),
        Task::Sanitize => sanitize::run(&workspace),
        Task::Bench { list: true, .. } => bench::list(&workspace),
        Task::Bench { group, check, arguments, .. } => {
            let group = &group.unwrap_or_default();
            bench::run(&workspace, &bench::Request { group, check, arguments: &arguments })
        }
        Task::Fuzz { target, time, keep } => {
            fuzz::run(&workspace, &fuzz::Request { target: &target, seconds: time, keep })
        }
        Task::Soak { packets } => soak::run(&workspace, packets),
        Task::Tidy => tidy::run(&workspace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_every_command_is_explained() {
        let command = Arguments::command();
        command.clone().debug_assert();
        for task in command.get_subcommands() {
            assert!(task.get_about().is_some(), "{} is not explained", task.get_name());
        }
    }

    #[test]
    fn bench_takes_a_group_or_list() {
        assert!(Arguments::try_parse_from(["xtask", "bench"]).is_err());
        assert!(Arguments::try_parse_from(["xtask", "bench", "--list"]).is_ok());
        assert!(Arguments::try_parse_from(["xtask", "bench", "forward", "--", "--quick"]).is_ok());
        assert!(Arguments::try_parse_from(["xtask", "bench", "instructions", "--check"]).is_ok());
        assert!(Arguments::try_parse_from(["xtask", "bench", "--check"]).is_err());
    }
}
