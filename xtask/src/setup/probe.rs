//! What is there and what isn't: a handful of files looked at and small programs run.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process;

use super::Wanted;

/// The oldest DPDK that the bindings take.
pub const DPDK_VERSION_MIN: &str = "22.11";

/// The drivers that the tests and the demo need, as the plugin folder names them.
const DRIVERS: [&str; 4] =
    ["librte_net_null.so", "librte_net_pcap.so", "librte_net_ring.so", "librte_net_memif.so"];

/// Folders under which LLVM stands, each distribution's own.
const LLVM_ROOTS: [&str; 4] = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"];

/// Something that building, testing or measuring hotloop takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    PkgConfig,
    CCompiler,
    LibDpdk,
    DpdkDrivers,
    LibClang,
    LibPcap,
    Testpmd,
    Valgrind,
    CxxCompiler,
    Nginx,
    Curl,
    Iproute,
    Ethtool,
}

impl Part {
    /// What it is, for the person at the terminal.
    pub fn name(self) -> &'static str {
        match self {
            Self::PkgConfig => "pkg-config",
            Self::CCompiler => "a C compiler with the C library's headers",
            Self::LibDpdk => "libdpdk's headers and libraries, 22.11 or later",
            Self::DpdkDrivers => "DPDK's drivers (null, pcap, ring, memif)",
            Self::LibClang => "libclang with its own headers, for bindgen",
            Self::LibPcap => "libpcap's headers and library",
            Self::Testpmd => "dpdk-testpmd, which the benchmarks measure against",
            Self::Valgrind => "valgrind, which counts instructions",
            Self::CxxCompiler => "a C++ compiler, which builds the fuzzer",
            Self::Nginx => "nginx, the live demo's servers",
            Self::Curl => "curl, the live demo's clients",
            Self::Iproute => "ip (iproute2), which makes the live demo's network",
            Self::Ethtool => "ethtool, which has the live demo's clients compute checksums",
        }
    }
}

/// What is missing, with what was found in its place.
pub fn missing(wanted: Wanted) -> Vec<(Part, String)> {
    type Check = fn() -> Result<(), String>;
    let checks: [(Part, Check); 6] = [
        (Part::PkgConfig, pkg_config),
        (Part::CCompiler, c_compiler),
        (Part::LibDpdk, libdpdk),
        (Part::DpdkDrivers, drivers),
        (Part::LibClang, libclang),
        (Part::LibPcap, libpcap),
    ];
    let testpmd: Option<(Part, Check)> = wanted.testpmd.then_some((Part::Testpmd, testpmd));
    let valgrind: Option<(Part, Check)> = wanted.valgrind.then_some((Part::Valgrind, valgrind));
    let cxx: Option<(Part, Check)> = wanted.cxx.then_some((Part::CxxCompiler, cxx_compiler));
    let live: [(Part, Check); 4] = [
        (Part::Nginx, || program("nginx")),
        (Part::Curl, || program("curl")),
        (Part::Iproute, || program("ip")),
        (Part::Ethtool, || program("ethtool")),
    ];
    checks
        .into_iter()
        .chain(testpmd)
        .chain(valgrind)
        .chain(cxx)
        .chain(live.into_iter().filter(|_| wanted.live))
        .filter_map(|(part, check)| check().err().map(|found| (part, found)))
        .collect()
}

/// The version of the libdpdk that pkg-config finds.
pub fn dpdk_version() -> Option<String> {
    ask_pkg_config(&["--modversion", "libdpdk"])
}

fn pkg_config() -> Result<(), String> {
    ask_pkg_config(&["--version"]).map(drop).ok_or_else(|| "not in PATH".into())
}

fn ask_pkg_config(arguments: &[&str]) -> Option<String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    process::quiet_output(Command::new(program).args(arguments))
}

fn c_compiler() -> Result<(), String> {
    let program = env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut words = program.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    command.args(words).args(["-fsyntax-only", "-x", "c", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|_| format!("no `{program}`"))?;
    if let Some(mut input) = child.stdin.take() {
        // A compiler that ends early shows in its exit code.
        input.write_all(b"#include <stdint.h>\n#include <stdio.h>\n").ok();
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("`{program}` finds no stdio.h")),
    }
}

fn libdpdk() -> Result<(), String> {
    let at_least = format!("libdpdk >= {DPDK_VERSION_MIN}");
    // `--cflags` also needs the packages that libdpdk requires.
    if ask_pkg_config(&["--cflags", &at_least]).is_some() {
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
    drivers_under(Path::new(&libraries))
}

/// Debian, Arch and DPDK's own build put plugins in `dpdk/pmds-VERSION`, Fedora in `dpdk-pmds`.
fn drivers_under(libraries: &Path) -> Result<(), String> {
    let dpdk = children(libraries, "dpdk");
    let plugins: Vec<PathBuf> =
        dpdk.iter().flat_map(|folder| children(folder, "pmds")).chain(dpdk.clone()).collect();
    let absent: Vec<_> = DRIVERS
        .iter()
        .filter(|driver| !plugins.iter().any(|folder| folder.join(driver).exists()))
        .copied()
        .collect();
    if absent.is_empty() {
        return Ok(());
    }
    Err(format!("not under {}: {}", libraries.display(), absent.join(", ")))
}

fn libclang() -> Result<(), String> {
    let roots: Vec<PathBuf> = LLVM_ROOTS.iter().map(PathBuf::from).collect();
    let named = env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    libclang_under(&roots, named.as_deref())
}

/// Looks where bindgen looks, and for `stddef.h`, which comes with clang and not with the C library.
fn libclang_under(roots: &[PathBuf], named: Option<&Path>) -> Result<(), String> {
    let mut libraries: Vec<PathBuf> = named.map(Path::to_path_buf).into_iter().collect();
    let mut headers = Vec::new();
    for root in roots {
        let llvm = children(root, "llvm");
        libraries.push(root.clone());
        libraries.extend(children(root, "").into_iter().filter(|folder| {
            folder.file_name().is_some_and(|name| name.to_string_lossy().contains("-linux-gnu"))
        }));
        libraries.extend(llvm.iter().flat_map(|folder| [folder.join("lib"), folder.join("lib64")]));
        headers.extend(llvm.iter().map(|folder| folder.join("lib/clang")));
        headers.push(root.join("clang"));
    }
    if !libraries.iter().any(|folder| named_like_libclang(folder)) {
        return Err(
            "no libclang.so in the system's library folders; LIBCLANG_PATH can name one".into()
        );
    }
    let builtin = headers
        .iter()
        .flat_map(|folder| children(folder, ""))
        .any(|version| version.join("include/stddef.h").exists());
    if builtin || named.is_some() {
        return Ok(());
    }
    Err("libclang is there, its own headers (clang/VERSION/include/stddef.h) are not".into())
}

/// `libclang.so`, `libclang.so.1`, `libclang-14.so`, `libclang-14.so.14.0.6`; `libclang-cpp` is
/// another library.
fn named_like_libclang(folder: &Path) -> bool {
    if folder.is_file() {
        return true;
    }
    entries(folder, "libclang").iter().any(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let rest = name.trim_start_matches("libclang");
        (rest.starts_with('.') || rest.starts_with('-'))
            && !rest.starts_with("-cpp")
            && rest.contains(".so")
    })
}

fn libpcap() -> Result<(), String> {
    ask_pkg_config(&["--libs", "libpcap"])
        .map(drop)
        .ok_or_else(|| "pkg-config finds no libpcap".into())
}

fn testpmd() -> Result<(), String> {
    program("dpdk-testpmd")
}

fn valgrind() -> Result<(), String> {
    program("valgrind")
}

fn cxx_compiler() -> Result<(), String> {
    program(&env::var("CXX").unwrap_or_else(|_| "c++".into()))
}

fn program(name: &str) -> Result<(), String> {
    process::find_program(name).map(drop).ok_or_else(|| "not in PATH".into())
}

fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    entries(folder, prefix).into_iter().filter(|entry| entry.is_dir()).collect()
}

fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(file: PathBuf) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }

    #[test]
    fn drivers_are_found_where_distributions_put_them_and_the_absent_one_is_named() {
        for folder in ["dpdk/pmds-23.0", "dpdk-pmds"] {
            let root = tempfile::tempdir().unwrap();
            for driver in &DRIVERS[..3] {
                touch(root.path().join(folder).join(driver));
            }
            let found = drivers_under(root.path()).unwrap_err();
            assert!(found.ends_with(": librte_net_memif.so"), "{found}");
            touch(root.path().join(folder).join(DRIVERS[3]));
            assert_eq!(drivers_under(root.path()), Ok(()));
        }
    }

    #[test]
    fn libclang_counts_only_with_its_headers() {
        let root = tempfile::tempdir().unwrap();
        let roots = [root.path().to_path_buf()];
        touch(root.path().join("x86_64-linux-gnu/libclang-cpp.so.14"));
        assert!(libclang_under(&roots, None).unwrap_err().starts_with("no libclang.so"));
        touch(root.path().join("x86_64-linux-gnu/libclang-14.so.14.0.6"));
        assert!(libclang_under(&roots, None).unwrap_err().contains("stddef.h"));
        touch(root.path().join("llvm-14/lib/clang/14.0.6/include/stddef.h"));
        assert_eq!(libclang_under(&roots, None), Ok(()));
    }
}
