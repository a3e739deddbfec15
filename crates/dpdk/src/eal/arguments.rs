//! EAL's arguments: checked before EAL sees them, since it answers a wrong one by its usage text.

use crate::Error;
use crate::port::DeviceString;
use std::fmt;
use std::fs;

/// What [`Eal::embedded`](crate::Eal::embedded) starts EAL with.
pub const EMBEDDED_ARGUMENTS: &[&str] = &["--no-pci", "--no-huge", "-m", "1024"];

/// Whether an option takes a value.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Value {
    No,
    Needed,
    /// Only as `--name=value`.
    Optional,
}
use Value::{Needed, No, Optional};

/// EAL's options, of DPDK 22.11 to 24.11.
const OPTIONS: &[(&str, Value)] = &[
    ("-a", Needed),
    ("-b", Needed),
    ("-c", Needed),
    ("-d", Needed),
    ("-l", Needed),
    ("-m", Needed),
    ("-n", Needed),
    ("-r", Needed),
    ("--allow", Needed),
    ("--base-virtaddr", Needed),
    ("--block", Needed),
    ("--create-uio-dev", No),
    ("--file-prefix", Needed),
    ("--force-max-simd-bitwidth", Needed),
    ("--huge-dir", Needed),
    ("--huge-unlink", Optional),
    ("--huge-worker-stack", Optional),
    ("--in-memory", No),
    ("--iova-mode", Needed),
    ("--lcores", Needed),
    ("--legacy-mem", No),
    ("--log-color", Optional),
    ("--log-level", Needed),
    ("--log-timestamp", Optional),
    ("--main-lcore", Needed),
    ("--match-allocations", No),
    ("--mbuf-pool-ops-name", Needed),
    ("--no-hpet", No),
    ("--no-huge", No),
    ("--no-pci", No),
    ("--no-shconf", No),
    ("--no-telemetry", No),
    ("--proc-type", Needed),
    ("--single-file-segments", No),
    ("--socket-limit", Needed),
    ("--socket-mem", Needed),
    ("--syslog", Needed),
    ("--trace", Needed),
    ("--trace-bufsz", Needed),
    ("--trace-dir", Needed),
    ("--trace-mode", Needed),
    ("--vdev", Needed),
    ("--vfio-intr", Needed),
    ("--vfio-vf-token", Needed),
    ("--vmware-tsc-map", No),
];

/// Options of EAL's that are refused, each with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("-h", "EAL would print its usage and end the process; see DPDK's guide, \"EAL parameters\""),
    (
        "--help",
        "EAL would print its usage and end the process; see DPDK's guide, \"EAL parameters\"",
    ),
    ("-v", "EAL would print its version and end the process"),
    ("--version", "EAL would print its version and end the process"),
    ("--telemetry", "its thread reads devices while they come and go, and crashes; leave it out"),
    ("-s", "service cores would use mempools behind this program's back; leave it out"),
    ("-S", "service cores would use mempools behind this program's back; leave it out"),
];

/// Arguments that EAL knows.
#[derive(Debug)]
pub(super) struct Arguments {
    words: Vec<String>,
    /// Devices given by `--vdev`: name and device string.
    announced: Vec<(String, String)>,
}

impl Arguments {
    /// Checks `words` and completes them.
    pub(super) fn parse(words: &[String]) -> Result<Self, Error> {
        let mut parsed = Self { words: vec!["hotloop".into()], announced: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (name, value) = split(word);
            match kind(word, name)? {
                No if value.is_some() => return Err(refuse(word, "it takes no value")),
                No | Optional => parsed.words.push(word.clone()),
                Needed => {
                    let value = value.or_else(|| words.next().map(String::as_str));
                    parsed.push_with_value(
                        name,
                        value.ok_or_else(|| refuse(word, "its value is missing"))?,
                    )?;
                }
            }
        }
        parsed.complete();
        Ok(parsed)
    }

    fn push_with_value(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match name {
            "--vdev" => {
                let name = DeviceString::parse(value)?.name().to_owned();
                self.announced.push((name, value.to_owned()));
            }
            "-m" if value.parse::<u32>().is_err() => {
                return Err(refuse(&format!("-m {value}"), "it takes a number of MiB"));
            }
            "--proc-type" if value != "primary" => {
                return Err(refuse("--proc-type", "only \"primary\" is possible: leave it out"));
            }
            _ => self.words.extend([name.to_owned(), value.to_owned()]),
        }
        Ok(())
    }

    /// Adds what keeps EAL from leaving files behind, from starting its telemetry, and from taking
    /// every CPU.
    fn complete(&mut self) {
        if !self.has("--no-telemetry") {
            self.words.push("--no-telemetry".into());
        }
        if self.has("--no-huge") {
            if !self.has("--no-shconf") {
                self.words.push("--no-shconf".into());
            }
        } else if self.has("--legacy-mem") {
            // Not to be had together with --in-memory.
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

    /// The words for EAL, a program's name first.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// The device strings given by `--vdev`, by the devices' names.
    pub(super) fn announced(&self) -> &[(String, String)] {
        &self.announced
    }

    /// What EAL's failure means, and what to do.
    pub(super) fn failed(&self, error: &str, said: &str) -> Error {
        let remedy = if self.has("--no-huge") {
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

/// `--name=value` and `-nvalue` in two.
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
    match OPTIONS.iter().find(|(option, _)| *option == name) {
        Some((_, value)) => Ok(*value),
        None => {
            Err(refuse(word, "EAL has no such option; DPDK's guide lists them, \"EAL parameters\""))
        }
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
    fn wrong_arguments_are_named() {
        for (line, expected) in [
            ("--no-hug", "no such option"),
            ("net_null0", "no such option"),
            ("-l", "value is missing"),
            ("-m 1G", "number of MiB"),
            ("--no-pci=1", "takes no value"),
            ("--help", "usage"),
            ("--telemetry", "leave it out"),
            ("--proc-type=secondary", "primary"),
            ("-S 1", "leave it out"),
        ] {
            let message = parse(line).unwrap_err().to_string();
            assert!(message.contains(expected), "{line}: {message}");
            assert!(message.contains(split(line.split(' ').next().unwrap()).0), "{message}");
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
}
