//! EAL's arguments, checked before EAL sees them, since EAL answers a wrong one with its usage
//! text.

use super::options::{IGNORED, LOG_FORMATS, OPTIONS, REFUSED, REPEATED, Value};
use crate::Error;
use crate::device::DeviceString;
use hotloop_dpdk_sys as sys;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

/// The arguments with which [`Eal::embedded`](crate::Eal::embedded) starts EAL.
pub const EMBEDDED_ARGUMENTS: &[&str] = &["--no-pci", "--no-huge", "-m", "1024"];

/// The kernel's magic number for the hugepage file system: `HUGETLBFS_MAGIC` in `linux/magic.h`.
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// Names of log levels, starting at level 1. EAL accepts any prefix of a name.
const LOG_LEVELS: [&str; 8] =
    ["emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"];

/// Parsed arguments.
#[derive(Debug)]
pub(super) struct Arguments {
    words: Vec<String>,
    /// Virtual devices given by `--vdev` or `-a`: name and device string.
    announced: Vec<(String, String)>,
}

impl Arguments {
    /// Checks `words` and completes them.
    pub(super) fn parse(words: &[String]) -> Result<Self, Error> {
        let mut parsed = Self { words: vec!["hotloop".into()], announced: Vec::new() };
        let mut words = words.iter();
        let mut given = BTreeSet::new();
        while let Some(word) = words.next() {
            let (name, value) = split(word);
            let kind = kind(word, name)?;
            if !given.insert(name) && !REPEATED.contains(&name) {
                return Err(refuse(word, "EAL would take one and ignore the other: give it once"));
            }
            match kind {
                Value::No if value.is_some() => return Err(refuse(word, "it takes no value")),
                Value::No | Value::Optional => parsed.words.push(word.clone()),
                Value::Needed => {
                    let value = value.or_else(|| words.next().map(String::as_str));
                    parsed.push_with_value(
                        name,
                        value.ok_or_else(|| refuse(word, "its value is missing"))?,
                    )?;
                }
            }
        }
        parsed.refuse_ignored()?;
        parsed.complete();
        Ok(parsed)
    }

    fn push_with_value(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let argument = || format!("{name} {value}");
        match name {
            // EAL would take the next word for another option or for a value, depending on its
            // version.
            _ if value.starts_with('-') => {
                return Err(refuse(&argument(), "a value does not start with -"));
            }
            "--vdev" | "-a" | "--allow" => {
                let device = DeviceString::parse(value)?;
                if device.is_virtual() {
                    let announced = (device.name().to_owned(), device.text().to_owned());
                    self.announced.push(announced);
                } else if name == "--vdev" {
                    return Err(refuse(&argument(), "it is no virtual device: give it to -a"));
                } else {
                    self.words.extend([name.to_owned(), device.text().to_owned()]);
                }
            }
            "-b" | "--block" => {
                let device = DeviceString::parse(value)?;
                if device.is_virtual() || device.has_arguments() {
                    return Err(refuse(&argument(), "it takes an address like 0000:01:00.0"));
                }
                self.words.extend([name.to_owned(), device.text().to_owned()]);
            }
            "-m" if !is_positive(value) => {
                return Err(refuse(&argument(), "it takes a number of MiB, from 1"));
            }
            "-n" | "-r" if !is_positive(value) => {
                return Err(refuse(&argument(), "it takes a number, from 1"));
            }
            "--log-level" if value == "help" => {
                return Err(refuse(&argument(), "EAL would print a list and end the process"));
            }
            "--log-level" if !is_log_level(value) => {
                let problem = "EAL would ignore it: it takes a level, from 1 to 8 or by name (\
                               debug), or PATTERN:LEVEL";
                return Err(refuse(&argument(), problem));
            }
            "--huge-dir" if !is_on_hugetlbfs(value) => {
                let problem = "it is no absolute path of a folder of hugepages (hugetlbfs): mount \
                               one there, or leave it out";
                return Err(refuse(&argument(), problem));
            }
            "--proc-type" if value != "primary" => {
                return Err(refuse("--proc-type", "only \"primary\" is possible: leave it out"));
            }
            _ => self.words.extend([name.to_owned(), value.to_owned()]),
        }
        Ok(())
    }

    /// Refuses options that EAL would silently ignore.
    fn refuse_ignored(&self) -> Result<(), Error> {
        for (option, is_with, other, why) in IGNORED {
            if self.has(option) && self.has(other) == *is_with {
                let with = if *is_with { "with" } else { "without" };
                let problem = format!("EAL ignores it {with} {other}: {why}; leave it out");
                return Err(refuse(option, &problem));
            }
        }
        Ok(())
    }

    /// Adds options that keep EAL from leaving files behind, from starting its telemetry, and from
    /// using every CPU.
    fn complete(&mut self) {
        if !self.has("--no-telemetry") {
            self.words.push("--no-telemetry".into());
        }
        if self.has("--no-huge") {
            if !self.has("--no-shconf") {
                self.words.push("--no-shconf".into());
            }
        } else if self.has("--legacy-mem") {
            // Not possible together with --in-memory.
            self.words.extend(["--no-shconf".into(), "--huge-unlink".into()]);
        } else if !self.has("--in-memory") {
            self.words.push("--in-memory".into());
        }
        if !["-l", "-c", "--lcores"].iter().any(|name| self.has(name)) {
            self.words.extend(["--lcores".into(), format!("0@{}", first_cpu())]);
        }
    }

    fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word == name)
    }

    pub(super) fn log_level_given(&self) -> bool {
        self.has("--log-level")
    }

    /// The words for EAL, beginning with a program name.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// The virtual devices' strings, by their names.
    pub(super) fn announced(&self) -> &[(String, String)] {
        &self.announced
    }

    /// Explains EAL's failure and its remedy. `earlier` are the arguments of an earlier failure:
    /// EAL keeps some state from that, and no arguments can be right any more.
    pub(super) fn failed(&self, error: &str, said: &str, earlier: Option<&str>) -> Error {
        // strerror's text for ENOMEM in the C locale.
        let remedy = if let Some(earlier) = earlier {
            &format!(
                "EAL had failed in this process before, with \"{earlier}\", and mostly does not start \
                 after that, whatever the arguments: correct those, and start the program again"
            )
        } else if error.contains("Cannot allocate memory") {
            "there is too little memory: raise the limits (ulimit -v, memory cgroup), end what else \
             takes it, or give EAL less, with -m MEBIBYTES"
        } else if self.has("--no-huge") {
            "check the values of these arguments; with none, EAL starts without hugepages, \
             privilege or devices"
        } else if hugepages_free() == 0 {
            "no hugepage is free: reserve some as root (`sysctl vm.nr_hugepages=512`), or do \
             without, with `--no-huge -m 1024` or no EAL arguments at all"
        } else {
            "check the values of these arguments and the right to use hugepages and devices (run \
             as root, or grant it), or do without, with no EAL arguments at all"
        };
        Error::EalInit {
            arguments: self.to_string(),
            error: error.into(),
            said: said.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words[1..].join(" "))
    }
}

/// Whether the value consists of decimal digits only, as read by atoi(3).
fn is_positive(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_digit())
        && value.parse::<i32>().is_ok_and(|number| number > 0)
}

/// `LEVEL`, `PATTERN:LEVEL` or `EXPRESSION,LEVEL`.
fn is_log_level(value: &str) -> bool {
    let level =
        value.split_once(',').or_else(|| value.split_once(':')).map_or(value, |(_, level)| level);
    let is_name = || LOG_LEVELS.iter().any(|name| name.starts_with(level));
    !level.is_empty() && (is_name() || ("1"..="8").contains(&level) && level.len() == 1)
}

/// Whether this is the path of a hugepage folder, compared as EAL does with the paths in
/// `/proc/mounts`.
fn is_on_hugetlbfs(path: &str) -> bool {
    let is_huge =
        rustix::fs::statfs(path).is_ok_and(|found| found.f_type as u64 == HUGETLBFS_MAGIC);
    Path::new(path).is_absolute() && is_huge
}

/// Splits `--name=value` and `-nvalue` in two.
fn split(word: &str) -> (&str, Option<&str>) {
    if word.starts_with("--") {
        return word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    }
    match word.char_indices().nth(2) {
        Some((index, _)) if word.starts_with('-') => (&word[..index], Some(&word[index..])),
        _ => (word, None),
    }
}

fn kind(word: &str, name: &str) -> Result<Value, Error> {
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Err(refuse(word, why));
    }
    if LOG_FORMATS.contains(&name) && sys::SH_EAL_FORMATS_LOG == 0 {
        return Err(refuse(word, "this DPDK has no such option; 24.11 has; leave it out"));
    }
    match OPTIONS.iter().find(|(option, ..)| *option == name) {
        Some((_, value, _)) => Ok(*value),
        None => Err(refuse(
            word,
            "no such option is known here; DPDK's guide lists EAL's, \"EAL parameters\"",
        )),
    }
}

fn refuse(argument: &str, problem: &str) -> Error {
    Error::EalArgument { argument: argument.into(), problem: problem.into() }
}

/// The first CPU that the calling thread may run on.
fn first_cpu() -> usize {
    let set = rustix::thread::sched_getaffinity(None).ok();
    set.and_then(|set| (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| set.is_set(*cpu)))
        .unwrap_or(0)
}

/// Free hugepages of all sizes.
fn hugepages_free() -> u64 {
    let sizes = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let free = |size: fs::DirEntry| {
        fs::read_to_string(size.path().join("free_hugepages")).ok()?.trim().parse::<u64>().ok()
    };
    sizes.filter_map(free).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, Error> {
        Arguments::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_completed() {
        let arguments = parse("-l 0-1 -a 0000:01:00.0").unwrap();
        assert_eq!(arguments.to_string(), "-l 0-1 -a 0000:01:00.0 --no-telemetry --in-memory");
        let arguments = parse("--no-huge -m256 --lcores=0@1 --no-shconf").unwrap();
        assert_eq!(
            arguments.to_string(),
            "--no-huge -m 256 --lcores 0@1 --no-shconf --no-telemetry"
        );
        let embedded = parse(&EMBEDDED_ARGUMENTS.join(" ")).unwrap().to_string();
        assert!(embedded.ends_with(&format!("--no-shconf --lcores 0@{}", first_cpu())));
    }

    #[test]
    fn options_of_later_versions_are_passed_on_where_eal_has_them() {
        for option in LOG_FORMATS {
            match parse(option) {
                Ok(arguments) => assert!(arguments.to_string().starts_with(option)),
                Err(error) => {
                    assert_eq!(sys::SH_EAL_FORMATS_LOG, 0);
                    assert!(error.to_string().contains("24.11 has"), "{error}");
                }
            }
        }
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (line, expected) in [
            ("--no-hug", "no such option"),
            ("--driver-path=x.so", "no such option"),
            ("net_null0", "no such option"),
            ("-l", "value is missing"),
            ("-m 1G", "number of MiB"),
            ("-m 0", "number of MiB, from 1"),
            ("-m 2147483648", "number of MiB, from 1"),
            ("-n 2x", "a number, from 1"),
            ("-r +1", "a number, from 1"),
            ("-m 64 -m 128", "give it once"),
            ("--no-huge --no-huge", "give it once"),
            ("--huge-worker-stack=16", "without a guard page"),
            ("--huge-worker-stack", "without a guard page"),
            ("--huge-unlink=never", "leaves none"),
            ("--syslog=daemon", "never reaches syslog"),
            ("--huge-dir /nonexistent", "no absolute path of a folder of hugepages"),
            ("--huge-dir /tmp", "no absolute path of a folder of hugepages"),
            ("--log-level=lib.eal:9", "EAL would ignore it"),
            ("--log-level lib.eal:0", "EAL would ignore it"),
            ("--log-level=lib.eal:", "EAL would ignore it"),
            ("--log-level=loud", "PATTERN:LEVEL"),
            ("--log-level=lib.*,12", "EAL would ignore it"),
            ("--vfio-intr msix --no-pci", "ignores it with --no-pci"),
            ("--vfio-vf-token 1 --no-pci", "ignores it with --no-pci"),
            ("--create-uio-dev --no-pci", "ignores it with --no-pci"),
            ("-b 0000:01:00.0 --no-pci", "ignores it with --no-pci"),
            ("--block 0000:01:00.0 --no-pci", "ignores it with --no-pci"),
            ("-a 0000:01:00.0 --no-pci", "ignores it with --no-pci"),
            ("--allow 0000:01:00.0 --no-pci", "ignores it with --no-pci"),
            ("--socket-limit 64 --no-huge", "ignores it with --no-huge"),
            ("--socket-limit 64 --legacy-mem", "ignores it with --legacy-mem"),
            ("--no-pci=1", "takes no value"),
            ("--help", "usage"),
            ("--telemetry", "leave it out"),
            ("--proc-type=secondary", "primary"),
            ("-S 1", "leave it out"),
            ("--log-level=help", "end the process"),
            ("-d librte_net_bond.so", "any code"),
            ("--mbuf-pool-ops-name ring_sp_sc", "several threads"),
            ("--mbuf-pool-ops-name=stack", "several threads"),
            ("--trace=.*", "never is"),
            ("--vmware-tsc-map", "crashes"),
            ("-l --vdev=net_null0", "start with -"),
            ("--vdev 0000:01:00.0", "give it to -a"),
            ("-b net_null0", "0000:01:00.0"),
        ] {
            let message = parse(line).unwrap_err().to_string();
            assert!(message.contains(expected), "{line}: {message}");
            assert!(message.contains(split(line.split(' ').next().unwrap()).0), "{message}");
        }
    }

    #[test]
    fn what_eal_would_not_ignore_is_passed_on() {
        for line in [
            "--log-level=8",
            "--log-level=debug",
            "--log-level lib.*:8 --log-level=pmd.net.pcap:warn",
            "--log-level=lib.eal,info",
            "-a net_null0 --no-pci",
            "-b 0000:01:00.0 -b 0000:01:00.1 --vfio-intr msix --create-uio-dev",
            "--socket-limit 64",
            "-m 64 -n 4 -r 16",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
        }
    }

    #[test]
    fn devices_are_announced_by_name() {
        let arguments = parse("--no-pci --vdev net_null0,size=60 --vdev=net_ring0").unwrap();
        assert!(!arguments.to_string().contains("vdev"));
        assert_eq!(
            arguments.announced(),
            [
                ("net_null0".to_owned(), "net_null0,size=60".to_owned()),
                ("net_ring0".to_owned(), "net_ring0".to_owned())
            ]
        );
        assert!(parse("--vdev net_nonsense0").is_err());
    }

    #[test]
    fn an_allowed_device_is_checked_as_an_announced_one() {
        let arguments = parse("-a net_null0,size=60 --allow=0000:01:00.0,,key=1").unwrap();
        assert!(arguments.to_string().starts_with("--allow 0000:01:00.0,key=1 --no-telemetry"));
        let announced = [("net_null0".to_owned(), "net_null0,size=60".to_owned())];
        assert_eq!(arguments.announced(), announced);
        for option in ["-a", "--allow", "--vdev"] {
            for device in ["net_null0,copy=1", "net_ring0,internal=1", "net_bonding0", "eth_null0"]
            {
                assert!(parse(&format!("{option} {device}")).is_err(), "{option} {device}");
            }
        }
        assert!(parse("-a 0000:01:00.0,a=1/bus=vdev,name=net_null0").is_err());
    }
}
