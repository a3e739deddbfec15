//! `cargo xtask`: sets up, checks, tests, measures and shows the project. It builds without DPDK,
//! so that it can install it.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a tool of the project's developers: its purpose is to print"
)]
#![forbid(unsafe_code)]

mod api;
mod bench;
mod changed;
mod check;
mod demo;
mod failure;
mod instructions;
mod lines;
mod links;
mod package;
mod process;
mod rustc;
mod setup;
mod skips;
mod soak;
mod steps;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;
use setup::Group;
use workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about, long_about = None)]
/// Sets up, checks, tests, measures and shows hotloop.
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Find out what is missing to build hotloop, and install it
    ///
    /// Looks for libdpdk >= 22.11 (headers and drivers), pkg-config, a C compiler and libpcap.
    /// Installs missing ones with apt, dnf, pacman or zypper, through sudo if necessary. If it
    /// cannot install them, it prints the command to run, and the exit code is 2.
    Setup {
        /// Also the parts for the benchmarks (dpdk-testpmd, valgrind, ip, clang, libbpf)
        #[arg(long)]
        bench: bool,
        /// Also the parts for the fuzzer (a C++ compiler)
        #[arg(long)]
        fuzz: bool,
        /// Also the parts for tests that are skipped without them (prometheus, tmux, bird)
        #[arg(long)]
        tests: bool,
        /// Also the parts for `demo --cluster` (bird, python3, ip, ethtool, jq)
        #[arg(long)]
        cluster: bool,
        /// Instead, print this system's packages for all of these parts
        #[arg(long)]
        list: bool,
    },
    /// Run the checks that need no tests: format, lints, docs, tidy, dependencies, packages, book,
    /// links
    ///
    /// Sets up first. Stops at the first step that fails and names it. A step with a missing tool
    /// is skipped with the reason; rustfmt and clippy are required if CI=true.
    Check {
        /// Run only this step; may be repeated
        #[arg(long, value_name = "STEP")]
        only: Vec<String>,
        /// Check only format, lints and tidy, and lints only in packages that differ from the branch's upstream, or
        /// from HEAD if it has none
        #[arg(long, conflicts_with = "only")]
        quick: bool,
    },
    /// Run the tests, then those without DPDK, under loom, on NEON and under AddressSanitizer
    ///
    /// Sets up first, and installs the programs that tests start if it can. Stops at the first step
    /// that fails and names it. A step that cannot run here is skipped with the reason. At the end,
    /// lists the tests that could not run here, or not completely, each with the reason. `--only
    /// miri` runs the tests of unsafe code under Miri.
    Test {
        /// Run only this step; may be repeated
        #[arg(long, value_name = "STEP")]
        only: Vec<String>,
    },
    /// Measure a group of benchmarks and its peers
    ///
    /// Prints a table and writes GROUP.json into target/bench. The exit code is 0 whatever the
    /// figures are. A row that was disturbed too often is `unsettled`. The group `all` is
    /// `forward`, `structures` and `balancer`, without the pipeline of two cores, and ends with a
    /// summary.
    ///
    /// The group `growth` compares the balancer with itself: hits with more and more connections,
    /// services or backends. It takes up to 13 GB of memory, and draws a picture. The group
    /// `sessions` has a balancer share its sessions with a peer, and measures the cost for bursts,
    /// control and the network.
    ///
    /// The group `katran` compares the balancer with Katran's XDP program in the kernel, which it
    /// compiles from source: the environment variable KATRAN names a clone of
    /// <https://github.com/facebookincubator/katran>. It needs root, and the parts of `setup
    /// --bench`; if something is missing, the table reports it.
    ///
    /// The group `udp` receives UDP datagrams through the kernel's sockets, in one way after the
    /// other, and then in poll mode, between two network namespaces; it draws a chart. The group
    /// `deployments` does the same for a network function in its deployments and as threads over
    /// RAW sockets. Both need root.
    ///
    /// The group `instructions` has no peers: it counts the instructions of the hot functions
    /// exactly, under callgrind, and keeps the counts in benches/instructions.json by compiler.
    /// With --check it compares them instead: a count that differs is exit code 1. A compiler
    /// without kept counts is reported, with exit code 0.
    Bench {
        /// The group, as printed by `--list`
        #[arg(required_unless_present = "list")]
        group: Option<String>,
        /// Print the groups
        #[arg(long)]
        list: bool,
        /// Compare instruction counts with the kept ones, and keep nothing
        #[arg(long, conflicts_with = "list")]
        check: bool,
        /// Keep the table, and the picture, in docs/performance, with the machine and the date
        #[arg(long, conflicts_with_all = ["list", "check"])]
        keep: bool,
        /// Measure this many times, and show how far the ratios of settled rows differ
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = times)]
        repeat: usize,
        /// Number of processes that play each quarter of a run: it takes that many times as long,
        /// and more rows settle
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = times)]
        processes: usize,
        /// Arguments of the benchmark, after --
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Run a capture of real traffic through the load balancer, and a UDP source into a UDP sink
    ///
    /// Sets up, builds the examples, runs tests/captures/clients.pcap through ipip-lb in both
    /// deployments, prints the packets per backend and why the rest was dropped, compares the two
    /// outputs packet by packet, then joins udp-source and udp-sink by a net_memif pair and prints
    /// their rates. Needs neither root, hugepages nor a NIC.
    Demo {
        /// Instead, put ipip-lb between real clients (curl) and real servers (nginx)
        ///
        /// In a network of namespaces and veth pairs: pages from three backends over IPv4 and IPv6,
        /// one killed, one drained, reloads under load, uploads with path-MTU discovery, and whole
        /// ledgers. Then nat44 between a LAN and a WAN: files, pings, time exceeded, port
        /// unreachable and path-MTU discovery, in both deployments. Then a firewall between an
        /// inside and an outside: what its rules allow and refuse, fragments, ICMP errors, and new
        /// rules under connections, in both deployments. Needs root and /dev/net/tun; installs
        /// nginx, curl, ping, traceroute, iproute2, ethtool and jq if they are missing, and measures
        /// throughput if iperf3 is there; leaves nothing behind.
        #[arg(long)]
        live: bool,
        /// Instead, kill, silence, withdraw and stop one of two balancers, and let it return
        ///
        /// In a network of namespaces and veth pairs: two ipip-lb announce a VIP with BIRD and BFD
        /// to a router that spreads connections over them, and 300 TCP connections go on whatever
        /// happens to one of the two; the router's reaction times are printed. Then 1,000
        /// connections upload while 50 rounds drawn from a seed are played: balancers are killed
        /// and stopped, backends drained, weighted, added and removed, the configuration changed in
        /// etcd, etcd itself killed, routes changed and nodes kept apart. Every byte must be
        /// confirmed. Needs root and /dev/net/tun; installs the parts of `setup --cluster`; leaves
        /// nothing behind.
        #[arg(long, conflicts_with = "live")]
        cluster: bool,
        #[command(flatten)]
        rounds: demo::Rounds,
    },
    /// Run the load balancer under attacks, reloads, queries and health flaps together
    ///
    /// In memory, half of the packets in each deployment; then, as root, the program on a veth pair
    /// with net_af_packet and beside a TAP interface, for up to 200,000 malformed frames and pings.
    /// The exit code is not 0 if a packet is unaccounted for, or an mbuf is not back in its pool.
    Soak {
        /// Number of packets
        #[arg(default_value_t = 1_000_000)]
        packets: u64,
    },
    /// Keep the lists of public items in crates/hotloop/api
    ///
    /// They list the items of the facade and of the crates that it re-exports; `check` compares them. Needs the Rust
    /// version of `rust-version`.
    Api,
    /// Count the lines of code, comments and tests in each package
    ///
    /// Covers Rust, C, shell and Python, kept generated code included. Blank lines don't count, nor do comments in tests.
    /// Tests are folders named `tests`, files named `tests.rs` and modules under `#[cfg(test)]`.
    Lines,
    /// Make the packages for shipping
    Package {
        #[command(subcommand)]
        what: Product,
    },
}

#[derive(Subcommand)]
enum Product {
    /// The packages for this release of Debian, in target/debian
    ///
    /// Builds the programs, their manual pages and completions. The .deb of ipip-lb has a systemd
    /// unit and the balancer's other files; the .deb of hotloop-tools has hotloop-top and
    /// hotloop-doctor, and needs no DPDK. Needs cargo-deb (cargo install cargo-deb --locked);
    /// installs dpkg-dev if it is missing. DPDK's library packages have different names in each
    /// release: build on the target release. `packaging/try-deb.sh` installs and runs them on a
    /// bare system.
    Deb,
    /// Manual pages and completions for bash, zsh and fish, in target/release/package
    Pages,
}

fn times(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "a number above 0".to_owned())
}

fn main() -> ExitCode {
    if let Some(exit_code) = api::become_rustdoc() {
        return exit_code;
    }
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
        Task::Setup { bench, fuzz, tests, cluster, list } => {
            let bench: &[Group] = if bench { &bench::ALL_NEEDS } else { &[] };
            let fuzz: &[Group] = if fuzz { &[Group::Fuzz] } else { &[] };
            let tests: &[Group] = if tests { &setup::TESTS } else { &[] };
            let cluster: &[Group] = if cluster { &demo::CLUSTER } else { &[] };
            let groups = [bench, fuzz, tests, cluster].concat();
            if list { setup::print_packages(&groups) } else { setup::run(&groups) }
        }
        Task::Check { quick: true, .. } => check::run_quick(&workspace),
        Task::Check { only, .. } => check::run(&workspace, &only),
        Task::Test { only } => test::run(&workspace, &only),
        Task::Bench { list: true, .. } => bench::list(&workspace),
        Task::Bench { group, check, keep, repeat, processes, arguments, .. } => {
            let options = bench::Options { check, keep, repeat, processes, arguments };
            bench::run(&workspace, &group.unwrap_or_default(), &options)
        }
        Task::Demo { cluster: true, rounds, .. } => demo::run_cluster(&workspace, &rounds),
        Task::Demo { live: true, .. } => demo::run_live(&workspace),
        Task::Demo { .. } => demo::run(&workspace),
        Task::Soak { packets } => soak::run(&workspace, packets),
        Task::Api => api::keep(&workspace),
        Task::Lines => lines::run(&workspace),
        Task::Package { what: Product::Deb } => package::deb(&workspace),
        Task::Package { what: Product::Pages } => package::pages(&workspace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
        assert!(Arguments::try_parse_from(["xtask", "bench"]).is_err());
        assert!(Arguments::try_parse_from(["xtask", "bench", "forward", "--", "--quick"]).is_ok());
    }
}
