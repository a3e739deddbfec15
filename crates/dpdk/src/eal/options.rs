//! EAL's options: which are passed on, which are refused, and which EAL would ignore.

/// Whether an option takes a value.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Value {
    No,
    Needed,
    /// Only as `--name=value`.
    Optional,
}
use Value::{Needed, No, Optional};

/// The options that are passed on to EAL. Each has the reason why no value of it lets safe code
/// break this crate's guarantees, and the code that the reason depends on. EAL of DPDK 22.11 to
/// 25.11 knows them, except [`LOG_FORMATS`]. EAL sees no other options.
pub(super) const OPTIONS: &[(&str, Value, &str)] = &[
    (
        "-a",
        Needed,
        "a device: `DeviceString::parse` checks it; `Port::open` plugs in a virtual one",
    ),
    ("--allow", Needed, "as -a"),
    ("-b", Needed, "an address that EAL leaves alone: `push_with_value` wants one of the PCI bus"),
    ("--block", Needed, "as -b"),
    ("--vdev", Needed, "a virtual device, which EAL does not see: as -a"),
    (
        "-c",
        Needed,
        "threads of EAL's own, which run what `threads::visit` launches, on usual stacks",
    ),
    ("-l", Needed, "as -c"),
    ("--lcores", Needed, "as -c"),
    (
        "--main-lcore",
        Needed,
        "as -c; the thread that has it ends: `Eal::with_args` starts one for it",
    ),
    ("-m", Needed, "how much memory EAL takes; with less, `RawMempool::create` returns an error"),
    ("--socket-mem", Needed, "as -m"),
    ("--socket-limit", Needed, "as -m"),
    ("-n", Needed, "memory channels, over which `create_contiguous` spreads mbufs: speed alone"),
    ("-r", Needed, "memory ranks: as -n"),
    (
        "--base-virtaddr",
        Needed,
        "a hint: where it is in use, the kernel picks another, and `start` warns",
    ),
    ("--huge-dir", Needed, "where hugepages come from: `is_on_hugetlbfs` wants a folder of them"),
    ("--in-memory", No, "no files: what `complete` adds"),
    ("--legacy-mem", No, "all memory at the start; `complete` adds that its files are removed"),
    ("--match-allocations", No, "when memory goes back to the kernel; a `RawMempool` never does"),
    ("--single-file-segments", No, "fewer descriptors for the same memory"),
    ("--no-huge", No, "memory in pages of the usual size, as in `EMBEDDED_ARGUMENTS`"),
    ("--iova-mode", Needed, "the addresses that devices use; EAL refuses those it can't provide"),
    ("--no-pci", No, "no devices on the PCI bus, as in `EMBEDDED_ARGUMENTS`"),
    ("--create-uio-dev", No, "device files of the uio driver, for devices that use it"),
    ("--vfio-intr", Needed, "how NICs interrupt: `Step::configure` asks for no interrupt"),
    ("--vfio-vf-token", Needed, "the secret by which the kernel lends out a virtual function"),
    ("--file-prefix", Needed, "the name of EAL's folder, in which `complete` leaves no files"),
    ("--no-shconf", No, "no files of the configuration: what `complete` adds"),
    ("--no-telemetry", No, "no telemetry: what `complete` adds"),
    ("--proc-type", Needed, "only \"primary\", the default: `push_with_value`"),
    ("--no-hpet", No, "the time is the CPU's own, as it is anyway: this crate asks EAL for none"),
    ("--force-max-simd-bitwidth", Needed, "drivers choose among loops that do the same"),
    ("--log-color", Optional, "how lines look that `log::write` gets, as text of any form"),
    ("--log-level", Needed, "which lines `log::write` gets; `push_with_value` refuses \"help\""),
    ("--log-timestamp", Optional, "as --log-color"),
];

/// Options in [`OPTIONS`] that not every EAL has.
pub(super) const LOG_FORMATS: [&str; 2] = ["--log-color", "--log-timestamp"];

/// Options in [`OPTIONS`] that may be repeated. Others are given to EAL once.
pub(super) const REPEATED: [&str; 6] = ["-a", "--allow", "-b", "--block", "--vdev", "--log-level"];

/// Options that EAL silently ignores, together with another (`true`) or without it, and why.
pub(super) const IGNORED: &[(&str, bool, &str, &str)] = &[
    ("--huge-dir", true, "--no-huge", "memory without hugepages is in no folder"),
    ("--huge-dir", false, "--legacy-mem", "hugepages then come from the kernel without a folder"),
    ("--socket-limit", true, "--no-huge", "all memory is taken at the start"),
    ("--socket-limit", true, "--legacy-mem", "all memory is taken at the start"),
    ("-a", true, "--no-pci", NO_PCI),
    ("--allow", true, "--no-pci", NO_PCI),
    ("-b", true, "--no-pci", NO_PCI),
    ("--block", true, "--no-pci", NO_PCI),
    ("--create-uio-dev", true, "--no-pci", NO_PCI),
    ("--vfio-intr", true, "--no-pci", NO_PCI),
    ("--vfio-vf-token", true, "--no-pci", NO_PCI),
];

const NO_PCI: &str = "it is for devices on the PCI bus";

/// EAL's options that are refused, each with the reason.
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("-h", HELP),
    ("--help", HELP),
    ("-v", "EAL would print its version and end the process"),
    ("--version", "EAL would print its version and end the process"),
    (
        "-d",
        "it loads any code into the process: install the driver in DPDK's own folder of drivers, \
         which EAL loads by itself",
    ),
    (
        "--huge-worker-stack",
        "EAL's lcores would have stacks without a guard page, in the memory of packets, while \
         Eal::visit_threads runs a program's function on them; leave it out",
    ),
    ("--huge-unlink", "EAL has no files for hugepages here, or leaves none; leave it out"),
    (
        "--syslog",
        "DPDK's log goes to this program's log, and never reaches syslog; leave it out, or have \
         the program's log sent there",
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

const HELP: &str =
    "EAL would print its usage and end the process; see DPDK's guide, \"EAL parameters\"";

const TRACE: &str = "EAL writes traces as it is cleaned up, which it never is here; leave it out";
