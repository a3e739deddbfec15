//! The parts that hotloop needs: how each is found, and its name in each package manager.

use std::process::Command;

use crate::process;

/// The column of apt's packages.
pub const APT: usize = 0;

/// The purpose of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Every task.
    Build,
    /// Benchmarks against dpdk-testpmd.
    Testpmd,
    /// Benchmarks that count instructions.
    Valgrind,
    /// Benchmarks against Katran.
    Katran,
    /// The fuzzer.
    Fuzz,
    /// Tests against programs that operators use.
    Tests,
    /// The live demo.
    Live,
    /// The demo of several balancers, which is a test, too.
    Cluster,
    /// Demos in networks of namespaces, and benchmarks of the kernel's network.
    Network,
    /// A package for Debian.
    Package,
}

/// A part that is found or installed.
pub struct Part {
    /// The name in messages.
    pub name: &'static str,
    group: Group,
    /// A shell script that succeeds if the part exists. Otherwise, its output is the finding in its
    /// place.
    find: &'static str,
    /// The packages of apt, dnf, pacman and zypper, with spaces between them.
    pub packages: [&'static str; 4],
}

const fn part(
    name: &'static str,
    group: Group,
    find: &'static str,
    packages: [&'static str; 4],
) -> Part {
    Part { name, group, find, packages }
}

/// All parts.
#[rustfmt::skip]
pub const PARTS: [Part; 26] = [
    part("pkg-config", Group::Build, "pc --version",
        ["pkg-config", "pkgconf-pkg-config", "pkgconf", "pkgconf-pkg-config"]),
    part("a C compiler with the C library's headers", Group::Build,
        "printf '#include <stdint.h>\n#include <stdio.h>\n' | ${CC:-cc} -fsyntax-only -x c -",
        ["gcc libc6-dev", "gcc glibc-devel", "gcc glibc", "gcc glibc-devel"]),
    // `--cflags` also needs the packages that libdpdk requires.
    part("libdpdk's headers and libraries, 22.11 or later", Group::Build,
        "pc --cflags 'libdpdk >= 22.11' || {
            pc --exists libdpdk && echo \"found $(pc --modversion libdpdk), or not all it requires\"; false; }",
        ["libdpdk-dev", "dpdk-devel", "dpdk", "dpdk-devel"]),
    // Debian, Arch and DPDK's own build put plugins in dpdk/pmds-VERSION, Fedora in dpdk-pmds. On Debian,
    // libdpdk-dev depends on every driver.
    part("DPDK's drivers (null, pcap, ring, memif)", Group::Build,
        "libraries=$(pc --variable=libdir libdpdk) && [ -n \"$libraries\" ] || exit 1
        for driver in null pcap ring memif; do
            found \"$libraries\"/dpdk/pmds*/librte_net_$driver.so \"$libraries\"/dpdk*/librte_net_$driver.so || {
                echo \"no $driver under $libraries\"; exit 1; }
        done",
        ["libdpdk-dev", "dpdk", "dpdk", "dpdk"]),
    part("libpcap's headers and library", Group::Build, "pc --libs libpcap",
        ["libpcap-dev", "libpcap-devel", "libpcap", "libpcap-devel"]),
    part("dpdk-testpmd, a peer of the benchmarks", Group::Testpmd, "command -v dpdk-testpmd",
        ["dpdk-dev", "dpdk", "dpdk", "dpdk"]),
    part("valgrind, which counts instructions", Group::Valgrind, "command -v valgrind",
        ["valgrind"; 4]),
    part("clang, which compiles Katran, a peer of the benchmarks", Group::Katran, "command -v clang",
        ["clang"; 4]),
    part("llc (LLVM), which makes BPF of it", Group::Katran, "command -v llc", ["llvm"; 4]),
    part("libbpf's headers and library, which load it", Group::Katran, "pc --libs libbpf",
        ["libbpf-dev", "libbpf-devel", "libbpf", "libbpf-devel"]),
    part("a C++ compiler, which builds the fuzzer", Group::Fuzz, "command -v ${CXX:-c++}",
        ["g++", "gcc-c++", "gcc", "gcc-c++"]),
    part("prometheus with promtool, which tests scrape metrics with", Group::Tests,
        "command -v prometheus && command -v promtool",
        ["prometheus", "golang-github-prometheus", "prometheus", "golang-github-prometheus-prometheus"]),
    part("objdump, which shows tests the code of drivers", Group::Tests, "command -v objdump",
        ["binutils"; 4]),
    part("tmux, the terminal of tests", Group::Tests, "command -v tmux", ["tmux"; 4]),
    part("nginx, the servers of the live demo", Group::Live, "command -v nginx", ["nginx"; 4]),
    part("curl, the clients of the live demo", Group::Live, "command -v curl", ["curl"; 4]),
    part("ping, of the live demo", Group::Live, "command -v ping",
        ["iputils-ping", "iputils", "iputils", "iputils"]),
    part("traceroute, of the live demo", Group::Live, "command -v traceroute", ["traceroute"; 4]),
    part("bird, version 2 or 3, the routing daemon of the demo of several balancers", Group::Cluster,
        "command -v birdc && bird --version 2>&1 | grep 'version [23]'", ["bird2", "bird", "bird", "bird"]),
    part("etcd, which has the configuration of all nodes in tests and demos", Group::Cluster,
        "command -v etcd", ["etcd-server", "etcd", "etcd", "etcd"]),
    part("python3, its clients and servers", Group::Cluster, "command -v python3",
        ["python3", "python3", "python", "python3"]),
    part("ip (iproute2), for networks of namespaces", Group::Network, "command -v ip",
        ["iproute2", "iproute", "iproute2", "iproute2"]),
    part("tcpdump, whose verdict on packets captures are compared with", Group::Network,
        "command -v tcpdump", ["tcpdump"; 4]),
    part("ethtool, for networks of namespaces", Group::Network, "command -v ethtool",
        ["ethtool"; 4]),
    part("jq, which reads the reports of demos", Group::Network, "command -v jq", ["jq"; 4]),
    part("dpkg-shlibdeps, which finds what a package for Debian depends on", Group::Package,
        "command -v dpkg-shlibdeps", ["dpkg-dev"; 4]),
];

/// The beginning of every script. The `PATH` of an ordinary user may lack the folders of system
/// programs.
const PRELUDE: &str = "
    PATH=$PATH:/usr/sbin:/sbin
    pc() { ${PKG_CONFIG:-pkg-config} \"$@\"; }
    found() { for file; do [ -e \"$file\" ] && return; done; false; }
";

/// The missing parts of these groups and of building, with the finding in their place.
pub fn missing(groups: &[Group]) -> Vec<(&'static Part, String)> {
    of(groups).filter_map(|part| find(part, &[]).err().map(|found| (part, found))).collect()
}

/// The parts of these groups and of building.
pub fn of(groups: &[Group]) -> impl Iterator<Item = &'static Part> {
    const { &PARTS }
        .iter()
        .filter(|part| part.group == Group::Build || groups.contains(&part.group))
}

fn find(part: &Part, environment: &[(&str, &str)]) -> Result<(), String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{PRELUDE}{}", part.find)]).envs(environment.iter().copied());
    let output = shell.output().map_err(|error| format!("sh: {error}"))?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() {
        true => Ok(()),
        false if found.is_empty() => Err("not found".into()),
        false => Err(found),
    }
}

/// The version of the libdpdk that pkg-config finds.
pub fn dpdk_version() -> String {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{PRELUDE} pc --modversion libdpdk")]);
    process::quiet_output(&mut shell).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup;
    use hotloop_test_tools::{Origin, TOOLS};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn touch(root: &Path, file: &str) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }

    /// Parts of origin `User` are in no group: their tests are skipped elsewhere.
    #[test]
    fn what_tests_start_and_a_debian_lacks_is_installed_before_they_run() {
        let tools = TOOLS.iter().filter(|(_, origin)| *origin == Origin::Setup);
        for (name, _) in tools {
            let has_it = |part: &Part| part.find.split_whitespace().any(|word| word == *name);
            assert!(of(&setup::TESTS).any(has_it), "no part of `setup --tests` looks for {name}");
        }
    }

    #[test]
    fn an_absent_driver_is_named() {
        for folder in ["dpdk/pmds-23.0", "dpdk-pmds"] {
            let root = tempfile::tempdir().unwrap();
            let pkg_config = root.path().join("pkg-config");
            fs::write(&pkg_config, format!("#!/bin/sh\necho {}\n", root.path().display())).unwrap();
            fs::set_permissions(&pkg_config, fs::Permissions::from_mode(0o755)).unwrap();
            let environment = [("PKG_CONFIG", pkg_config.to_str().unwrap())];
            for driver in ["null", "pcap", "ring"] {
                touch(root.path(), &format!("{folder}/librte_net_{driver}.so"));
            }
            let found = find(&PARTS[3], &environment).unwrap_err();
            assert!(found.starts_with("no memif under "), "{found}");
            touch(root.path(), &format!("{folder}/librte_net_memif.so"));
            assert_eq!(find(&PARTS[3], &environment), Ok(()));
        }
    }
}
