//! The package managers, and what each calls the parts.

use std::process::Command;

use crate::process;

use super::probe::Part;

/// The system's package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageManager {
    /// Debian, Ubuntu and what derives from them.
    Apt,
    /// Fedora, RHEL and what derives from them.
    Dnf,
    /// Arch.
    Pacman,
    /// openSUSE.
    Zypper,
}

impl PackageManager {
    /// The first one that is installed.
    pub fn of_this_system() -> Option<Self> {
        [Self::Apt, Self::Dnf, Self::Pacman, Self::Zypper]
            .into_iter()
            .find(|manager| process::find_program(manager.program()).is_some())
    }

    /// The program's name.
    pub fn program(self) -> &'static str {
        match self {
            Self::Apt => "apt-get",
            Self::Dnf => "dnf",
            Self::Pacman => "pacman",
            Self::Zypper => "zypper",
        }
    }

    /// The command that reads the package lists anew, where installing doesn't do so itself.
    pub fn update(self) -> Option<Vec<String>> {
        (self == Self::Apt).then(|| words("apt-get update -qq"))
    }

    /// The command that installs the parts and asks nothing.
    pub fn install(self, parts: &[Part]) -> Vec<String> {
        let mut command = words(match self {
            Self::Apt => {
                "env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends"
            }
            Self::Dnf => "dnf install -y --setopt=install_weak_deps=False",
            Self::Pacman => "pacman -S --needed --noconfirm",
            Self::Zypper => "zypper --non-interactive install --no-recommends",
        });
        for package in parts.iter().flat_map(|part| self.packages(*part)) {
            if !command.contains(&package) {
                command.push(package);
            }
        }
        command
    }

    /// Whether it prints several lines for each of DPDK's 250 packages, and errors apart from them.
    pub fn prints_each_package(self) -> bool {
        self == Self::Apt
    }

    /// What a person would type as root.
    pub fn install_line(self, parts: &[Part]) -> String {
        let steps = self.update().into_iter().chain([self.install(parts)]);
        steps.map(|step| step.join(" ")).collect::<Vec<_>>().join(" && ")
    }

    fn packages(self, part: Part) -> Vec<String> {
        if self == Self::Apt && part == Part::LibClang {
            let depends =
                process::quiet_output(Command::new("apt-cache").args(["depends", "libclang1"]));
            return apt_libclang(&depends.unwrap_or_default());
        }
        words(match (self, part) {
            (_, Part::Valgrind) => "valgrind",
            (Self::Apt, Part::CxxCompiler) => "g++",
            (Self::Pacman, Part::CxxCompiler) => "gcc",
            (_, Part::CxxCompiler) => "gcc-c++",
            (_, Part::Nginx) => "nginx",
            (_, Part::Curl) => "curl",
            (_, Part::Ethtool) => "ethtool",
            (Self::Dnf, Part::Iproute) => "iproute",
            (_, Part::Iproute) => "iproute2",

            (Self::Apt, Part::PkgConfig) => "pkg-config",
            (Self::Apt, Part::CCompiler) => "gcc libc6-dev",
            // Depends on every driver.
            (Self::Apt, Part::LibDpdk | Part::DpdkDrivers) => "libdpdk-dev",
            (Self::Apt, Part::LibPcap) => "libpcap-dev",
            (Self::Apt, Part::Testpmd) => "dpdk-dev",
            (Self::Apt, Part::LibClang) => "libclang-dev",

            (Self::Dnf | Self::Zypper, Part::PkgConfig) => "pkgconf-pkg-config",
            (Self::Dnf | Self::Zypper, Part::CCompiler) => "gcc glibc-devel",
            (Self::Dnf | Self::Zypper, Part::LibDpdk) => "dpdk-devel",
            (Self::Dnf | Self::Zypper, Part::DpdkDrivers | Part::Testpmd) => "dpdk",
            (Self::Dnf | Self::Zypper, Part::LibClang) => "clang-devel",
            (Self::Dnf | Self::Zypper, Part::LibPcap) => "libpcap-devel",

            (Self::Pacman, Part::PkgConfig) => "pkgconf",
            (Self::Pacman, Part::CCompiler) => "gcc glibc",
            (Self::Pacman, Part::LibDpdk | Part::DpdkDrivers | Part::Testpmd) => "dpdk",
            (Self::Pacman, Part::LibClang) => "clang",
            (Self::Pacman, Part::LibPcap) => "libpcap",
        })
    }
}

/// bindgen takes the bare library with clang's own headers; `libclang-dev` brings as much again of
/// C++ and Objective-C. The headers' package has the version in its name, which `libclang1` knows.
fn apt_libclang(depends: &str) -> Vec<String> {
    let version = depends
        .split_whitespace()
        .find_map(|word| word.strip_prefix("libclang1-"))
        .map(|rest| rest.trim_end_matches("t64"))
        .filter(|version| version.bytes().all(|byte| byte.is_ascii_digit()));
    match version {
        Some(version) => words(&format!("libclang1 libclang-common-{version}-dev")),
        None => words("libclang-dev"),
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_apt_s_libclang_have_its_version() {
        let names = ["libclang1", "libclang-common-14-dev"];
        assert_eq!(apt_libclang("libclang1\n  Depends: libclang1-14\n"), names);
        assert_eq!(apt_libclang("libclang1\n  Depends: libclang1-14t64\n"), names);
        assert_eq!(apt_libclang(""), ["libclang-dev"]);
        assert_eq!(apt_libclang("  Depends: libclang1-next"), ["libclang-dev"]);
    }

    #[test]
    fn a_package_is_named_once() {
        let install = PackageManager::Apt.install(&[Part::LibDpdk, Part::DpdkDrivers]);
        assert_eq!(install.iter().filter(|word| *word == "libdpdk-dev").count(), 1);
        let line = PackageManager::Pacman.install_line(&[Part::LibDpdk, Part::LibPcap]);
        assert_eq!(line, "pacman -S --needed --noconfirm dpdk libpcap");
    }

    #[test]
    fn apt_reads_its_lists_first() {
        let line = PackageManager::Apt.install_line(&[Part::PkgConfig]);
        assert!(line.starts_with("apt-get update -qq && env DEBIAN_FRONTEND="), "{line}");
    }
}
