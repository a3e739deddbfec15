//! EAL's arguments: checked before EAL sees them, since it answers a wrong one by its usage text.

use crate::Error;
use crate::port::DeviceString;
use hotloop_dpdk_sys as sys;
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

/// The options that EAL gets, each with the reason why no value of it lets safe code break what this
/// crate promises. EAL of DPDK 22.11 to 25.11 knows them, save [`LOG_FORMATS`]. What is not here, EAL
/// does not see.
const OPTIONS: &[(&str, Value, &str)] = &[
    ("-a", Needed, "a device: checked as Port::open checks it; a virtual one EAL does not see"),
    ("--allow", Needed, "as -a"),
    ("-b", Needed, "an address on the PCI bus, which EAL then leaves alone"),
    ("--block", Needed, "as -b"),
    ("--vdev", Needed, "a virtual device: checked as Port::open checks it; EAL does not see it"),
    ("-c", Needed, "lcores of EAL's own, whose threads only wait"),
    ("-l", Needed, "as -c"),
    ("--lcores", Needed, "as -c"),
    ("--main-lcore", Needed, "as -c; the thread that has it ends with the initialisation"),
    ("-m", Needed, "how much memory EAL takes; where there is less, it does not start"),
    ("--socket-mem", Needed, "as -m"),
    ("--socket-limit", Needed, "as -m"),
    ("-n", Needed, "memory channels, by which objects are spread; more than there are cost speed"),
    ("-r", Needed, "memory ranks: as -n"),
    ("--base-virtaddr", Needed, "a hint: the kernel picks another address where it is in use"),
    ("--huge-dir", Needed, "where files of hugepages are made"),
    ("--huge-unlink", Optional, "when they are removed; EAL clears pages that it finds in use"),
    ("--huge-worker-stack", Optional, "memory for the stacks of EAL's lcores, which only wait"),
    ("--in-memory", No, "no files"),
    ("--legacy-mem", No, "all memory at the start"),
    ("--match-allocations", No, "when memory goes back to the kernel: as it was taken"),
    ("--single-file-segments", No, "fewer files for the same memory"),
    ("--no-huge", No, "memory in pages of the usual size"),
    ("--iova-mode", Needed, "the addresses that devices use; EAL refuses those it can't provide"),
    ("--no-pci", No, "no devices on the PCI bus"),
    ("--create-uio-dev", No, "device files of the uio driver, for devices that use it"),
    ("--vfio-intr", Needed, "how NICs interrupt, which nothing here waits for"),
    ("--vfio-vf-token", Needed, "the secret by which the kernel lends out a virtual function"),
    ("--file-prefix", Needed, "names of EAL's own files"),
    ("--no-shconf", No, "no files of the configuration"),
    ("--no-telemetry", No, "no telemetry"),
    ("--proc-type", Needed, "only \"primary\", which is the default"),
    ("--no-hpet", No, "the time is the CPU's own, as it is anyway"),
    ("--force-max-simd-bitwidth", Needed, "drivers choose among loops that do the same"),
    ("--log-color", Optional, "how log lines look"),
    ("--log-level", Needed, "which log lines there are; not \"help\", which ends the process"),
    ("--log-timestamp", Optional, "how log lines look"),
    ("--syslog", Optional, "a copy of the log, and the facility that it goes to"),
];

/// Those of [`OPTIONS`] that not every EAL has.
const LOG_FORMATS: [&str; 2] = ["--log-color", "--log-timestamp"];

/// Options of EAL's that are refused, each with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("-h", "EAL would print its usage and end the process; see DPDK's guide, \"EAL parameters\""),
    (
        "--help",
        "EAL would print its usage and end the process; see DPDK's guide, \"EAL parameters\"",
    ),
    ("-v", "EAL would print its version and end the process"),
    ("--version", "EAL would print its version and end the process"),
    (
        "-d",
        "it loads any code into the process: install the driver in DPDK's own folder of drivers, \
         which EAL loads by itself",
    ),
    (
        "--mbuf-pool-ops-name",
        "mempools are used by several threads, which not every kind of pool allows; leave it out",
    ),
    ("--telemetry", "its thread reads devices while they come and go, and crashes; leave it out"),
    ("-s", "service cores would use mempools that this program does not know of; leave it out"),
    ("-S", "service cores would use mempools that this program does not know of; leave it out"),
    ("--trace", TRACE),
    ("--trace-bufsz", TRACE),
    ("--trace-dir", TRACE),
    ("--trace-mode", TRACE),
    ("--vmware-tsc-map", "reading the time that way crashes on any other machine; leave it out"),
];

const TRACE: &str = "EAL writes traces as it is cleaned up, which it never is here; leave it out";

/// Arguments that EAL knows.
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
        let argument = || format!("{name} {value}");
        match name {
            // EAL would take what follows for another option, or for a value, by its version.
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
            "-m" if value.parse::<u32>().is_err() => {
                return Err(refuse(&argument(), "it takes a number of MiB"));
            }
            "--log-level" if value == "help" => {
                return Err(refuse(&argument(), "EAL would print a list and end the process"));
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

    /// The virtual devices' strings, by their names.
    pub(super) fn announced(&self) -> &[(String, String)] {
        &self.announced
    }

    /// What EAL's failure means, and what to do.
    pub(super) fn failed(&self, error: &str, said: &str) -> Error {
        // What strerror says of ENOMEM, in the C locale.
        let remedy = if error.contains("Cannot allocate memory") {
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
