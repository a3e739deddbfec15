//! What hotloop needs: how each part is found, and what each package manager calls it.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::process;

/// The oldest DPDK that the bindings support.
pub const DPDK_VERSION_MIN: &str = "22.11";

/// The column of apt's packages.
pub const APT: usize = 0;

/// What a part is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Every task.
    Build,
    /// Benchmarks against dpdk-testpmd.
    Testpmd,
    /// Benchmarks that count instructions.
    Valgrind,
    /// The fuzzer.
    Fuzz,
    /// The live demo.
    Live,
}

/// Something that is found or installed.
pub struct Part {
    /// Its name in messages.
    pub name: &'static str,
    group: Group,
    /// The error is what was found in its place.
    find: fn() -> Result<(), String>,
    /// The packages of apt, dnf, pacman and zypper, with spaces between them.
    pub packages: [&'static str; 4],
}

const fn part(
    name: &'static str,
    group: Group,
    find: fn() -> Result<(), String>,
    packages: [&'static str; 4],
) -> Part {
    Part { name, group, find, packages }
}

/// All parts.
#[rustfmt::skip]
pub const PARTS: [Part; 14] = [
    part("pkg-config", Group::Build, pkg_config,
        ["pkg-config", "pkgconf-pkg-config", "pkgconf", "pkgconf-pkg-config"]),
    part("a C compiler with the C library's headers", Group::Build, c_compiler,
        ["gcc libc6-dev", "gcc glibc-devel", "gcc glibc", "gcc glibc-devel"]),
    part("libdpdk's headers and libraries, 22.11 or later", Group::Build, libdpdk,
        ["libdpdk-dev", "dpdk-devel", "dpdk", "dpdk-devel"]),
    // On Debian, libdpdk-dev depends on every driver.
    part("DPDK's drivers (null, pcap, ring, memif)", Group::Build, drivers,
        ["libdpdk-dev", "dpdk", "dpdk", "dpdk"]),
    part("libclang with its own headers, for bindgen", Group::Build, || libclang("/"),
        ["libclang-dev", "clang-devel", "clang", "clang-devel"]),
    part("libpcap's headers and library", Group::Build, libpcap,
        ["libpcap-dev", "libpcap-devel", "libpcap", "libpcap-devel"]),
    part("dpdk-testpmd, a peer of the benchmarks", Group::Testpmd, || program("dpdk-testpmd"),
        ["dpdk-dev", "dpdk", "dpdk", "dpdk"]),
    part("valgrind, which counts instructions", Group::Valgrind, || program("valgrind"),
        ["valgrind"; 4]),
    part("a C++ compiler, which builds the fuzzer", Group::Fuzz, cxx_compiler,
        ["g++", "gcc-c++", "gcc", "gcc-c++"]),
    part("nginx, the servers of the live demo", Group::Live, || program("nginx"), ["nginx"; 4]),
    part("curl, the clients of the live demo", Group::Live, || program("curl"), ["curl"; 4]),
    part("ip (iproute2), for the network of the live demo", Group::Live, || program("ip"),
        ["iproute2", "iproute", "iproute2", "iproute2"]),
    part("ethtool, for the network of the live demo", Group::Live, || program("ethtool"),
        ["ethtool"; 4]),
    part("jq, which reads the reports of the live demo", Group::Live, || program("jq"), ["jq"; 4]),
];

/// The missing parts of these groups and of building, with what was found in their place.
pub fn missing(groups: &[Group]) -> Vec<(&'static Part, String)> {
    const { &PARTS }
        .iter()
        .filter(|part| part.group == Group::Build || groups.contains(&part.group))
        .filter_map(|part| (part.find)().err().map(|found| (part, found)))
        .collect()
}

/// The version of the libdpdk that pkg-config finds.
pub fn dpdk_version() -> Option<String> {
    ask_pkg_config(&["--modversion", "libdpdk"])
}

/// bindgen needs only the library and clang's own headers; `libclang-dev` is twice as large. The
/// package of the headers has the version in its name, which `libclang1` depends on.
pub fn apt_libclang() -> String {
    let depends = process::quiet_output(Command::new("apt-cache").args(["depends", "libclang1"]));
    apt_libclang_of(&depends.unwrap_or_default())
}

fn apt_libclang_of(depends: &str) -> String {
    let version = depends
        .split_whitespace()
        .find_map(|word| word.strip_prefix("libclang1-"))
        .map(|rest| rest.trim_end_matches("t64"))
        .filter(|version| version.bytes().all(|byte| byte.is_ascii_digit()));
    version
        .map_or("libclang-dev".into(), |version| format!("libclang1 libclang-common-{version}-dev"))
}

fn program(name: &str) -> Result<(), String> {
    process::find_program(name).map(drop).ok_or_else(|| "not in PATH".into())
}

fn cxx_compiler() -> Result<(), String> {
    program(&env::var("CXX").unwrap_or_else(|_| "c++".into()))
}

fn ask_pkg_config(arguments: &[&str]) -> Option<String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    process::quiet_output(Command::new(program).args(arguments))
}

fn pkg_config() -> Result<(), String> {
    ask_pkg_config(&["--version"]).map(drop).ok_or_else(|| "not in PATH".into())
}

fn libpcap() -> Result<(), String> {
    ask_pkg_config(&["--libs", "libpcap"])
        .map(drop)
        .ok_or_else(|| "pkg-config finds no libpcap".into())
}

fn c_compiler() -> Result<(), String> {
    let program = env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut words = program.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    command.args(words).args(["-fsyntax-only", "-x", "c", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|_| format!("no `{program}`"))?;
    if let Some(mut input) = child.stdin.take() {
        // The exit code of a compiler that ends early shows the failure.
        input.write_all(b"#include <stdint.h>\n#include <stdio.h>\n").ok();
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("`{program}` finds no stdio.h")),
    }
}

fn libdpdk() -> Result<(), String> {
    // `--cflags` also needs the packages that libdpdk requires.
    if ask_pkg_config(&["--cflags", &format!("libdpdk >= {DPDK_VERSION_MIN}")]).is_some() {
        return Ok(());
    }
    Err(match dpdk_version() {
        Some(version) => format!("pkg-config finds libdpdk {version}, or not all it requires"),
        None => "pkg-config finds no libdpdk".into(),
    })
}

fn drivers() -> Result<(), String> {
    let libraries = ask_pkg_config(&["--variable=libdir", "libdpdk"])
        .filter(|folder| !folder.is_empty())
        .ok_or("no libdpdk, no drivers")?;
    drivers_under(&libraries)
}

/// Debian, Arch and DPDK's own build put plugins in `dpdk/pmds-VERSION`, Fedora in `dpdk-pmds`.
fn drivers_under(libraries: &str) -> Result<(), String> {
    let is_absent = |driver: &&str| {
        let file = format!("librte_net_{driver}.so");
        !exists(libraries, &format!("dpdk/pmds*/{file} dpdk*/{file}"))
    };
    let absent: Vec<_> = ["null", "pcap", "ring", "memif"].into_iter().filter(is_absent).collect();
    if absent.is_empty() {
        return Ok(());
    }
    Err(format!("not under {libraries}: {}", absent.join(", ")))
}

/// Looks where bindgen looks, and for `stddef.h`, which is part of clang and not of the C library.
/// `libclang-cpp` is another library.
fn libclang(root: &str) -> Result<(), String> {
    if env::var_os("LIBCLANG_PATH").is_some_and(|path| std::path::Path::new(&path).exists()) {
        return Ok(());
    }
    let (mut libraries, mut headers) = (String::new(), String::new());
    for folder in ["usr/lib", "usr/lib64", "usr/local/lib", "usr/local/lib64"] {
        for inner in ["", "*-linux-gnu*/", "llvm*/lib/", "llvm*/lib64/"] {
            for name in ["libclang.so*", "libclang-[0-9]*.so*"] {
                libraries += &format!("{folder}/{inner}{name} ");
            }
        }
        for inner in ["llvm*/lib/clang", "clang"] {
            headers += &format!("{folder}/{inner}/*/include/stddef.h ");
        }
    }
    if !exists(root, &libraries) {
        return Err("no libclang.so in the system's folders; LIBCLANG_PATH can name one".into());
    }
    if !exists(root, &headers) {
        return Err("libclang is there without its headers (clang/VERSION/include)".into());
    }
    Ok(())
}

/// Whether a file matches one of the shell's patterns, seen from the folder.
fn exists(folder: &str, patterns: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("cd \"$1\" && ls -d {patterns}; true"), "sh", folder]);
    process::quiet_output(&mut shell).is_some_and(|found| !found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn touch(root: &Path, file: &str) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }

    #[test]
    fn an_absent_driver_is_named() {
        for folder in ["dpdk/pmds-23.0", "dpdk-pmds"] {
            let root = tempfile::tempdir().unwrap();
            for driver in ["null", "pcap", "ring"] {
                touch(root.path(), &format!("{folder}/librte_net_{driver}.so"));
            }
            let find = || drivers_under(root.path().to_str().unwrap());
            assert!(find().unwrap_err().ends_with(": memif"), "{:?}", find());
            touch(root.path(), &format!("{folder}/librte_net_memif.so"));
            assert_eq!(find(), Ok(()));
        }
    }

    #[test]
    fn libclang_without_its_headers_is_missing() {
        let root = tempfile::tempdir().unwrap();
        let find = || libclang(root.path().to_str().unwrap());
        touch(root.path(), "usr/lib/x86_64-linux-gnu/libclang-cpp.so.14");
        assert!(find().unwrap_err().starts_with("no libclang.so"));
        touch(root.path(), "usr/lib/x86_64-linux-gnu/libclang-14.so.14.0.6");
        assert!(find().unwrap_err().contains("without its headers"));
        touch(root.path(), "usr/lib/llvm-14/lib/clang/14.0.6/include/stddef.h");
        assert_eq!(find(), Ok(()));
    }

    #[test]
    fn apt_names_the_headers_of_libclang_by_version() {
        let names = "libclang1 libclang-common-14-dev";
        assert_eq!(apt_libclang_of("libclang1\n  Depends: libclang1-14\n"), names);
        assert_eq!(apt_libclang_of("libclang1\n  Depends: libclang1-14t64\n"), names);
        assert_eq!(apt_libclang_of("  Depends: libclang1-next"), "libclang-dev");
    }
}
