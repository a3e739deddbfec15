//! Facts about drivers that DPDK does not report.

mod nics;

/// A driver's properties, as far as this crate must know them to keep its guarantees.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Driver {
    /// DPDK's name for the driver.
    pub name: &'static str,
    /// Whether received mbufs always come fresh from the port's own pool. If not, RX checks that
    /// each has no other owner.
    pub fresh_mbufs: bool,
    /// Whether the lengths of received mbufs agree, whatever is received. If not, because the
    /// driver takes them from someone else's data (a file, the kernel, a peer), RX checks them.
    pub valid_lengths: bool,
    /// Whether the driver sends chains of any length although it does not offer the offload.
    pub sends_chains: bool,
    /// Maximum number of mbufs that a TX queue, or the driver for it, holds, if that is more than
    /// its descriptors.
    pub held_count: u16,
    /// Whether the driver keeps mbufs after it was closed.
    pub keeps_mbufs: bool,
    /// Whether the driver's counters read 0 once its peer has gone: then queues count themselves.
    pub forgets_counts: bool,
    /// Whether another process, at the other end of the device, can crash this one.
    pub trusts_peer: bool,
    /// Whether the driver counts packets that a TX queue took but could not send as errors, and not
    /// as sent.
    pub loses_taken: bool,
    /// The number of queues to configure.
    pub queues: Queues,
    /// The counter of packets that were lost for want of an RX descriptor.
    pub missed: Missed,
    /// Refused arguments: the name, a harmless value if any, and the reason.
    pub refused: &'static [(&'static str, Option<&'static str>, &'static str)],
    /// Whether frames can be addressed to the device's own MAC address.
    pub has_own_mac: bool,
    /// Whether the device can be closed and reopened while its interface is replaced.
    pub reopens: bool,
    /// Whether the driver passes on frames that the kernel has cut to its ring's frame size.
    pub cuts_frames: bool,
    /// How to give the device more queues.
    pub more_queues: &'static str,
}

/// The number of queues that a device is configured with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Queues {
    /// The claimed queues.
    Claimed,
    /// The same number in both directions: the device doesn't start otherwise.
    Paired,
    /// All queues of the device: packets arrive on each, claimed or not.
    All,
}

impl Queues {
    /// Numbers of RX and TX queues, given the claimed ones and the device's maximum.
    pub(crate) fn configured(self, claimed: (u16, u16), max: (u16, u16)) -> (u16, u16) {
        match self {
            Self::Claimed => claimed,
            Self::Paired => (claimed.0.max(claimed.1), claimed.0.max(claimed.1)),
            Self::All => max,
        }
    }
}

/// The counter of packets that were lost for want of an RX descriptor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Missed {
    /// The driver.
    Driver,
    /// The kernel, for each packet socket that the driver opens when it is plugged in.
    PacketSockets,
    /// The kernel, for each XDP socket that the driver opens when it starts.
    XdpSockets,
    /// The kernel, for the interface that the driver makes: the kernel doesn't send packets that
    /// the driver doesn't take.
    Interface,
    /// No counter, or only part of one.
    Unknown,
}

/// Assumptions about a driver that nobody has reviewed.
pub(crate) static UNKNOWN: Driver = Driver {
    name: "",
    fresh_mbufs: false,
    valid_lengths: false,
    sends_chains: false,
    held_count: 0,
    keeps_mbufs: false,
    forgets_counts: false,
    trusts_peer: false,
    loses_taken: false,
    queues: Queues::Claimed,
    missed: Missed::Unknown,
    refused: &[],
    has_own_mac: true,
    reopens: false,
    cuts_frames: false,
    more_queues: "",
};

/// Why arguments of net_af_xdp for Kubernetes are refused, which DPDK has in versions after 22.11.
const PLUGIN: &str = "the driver crashes where no device plugin has made its map";

/// Virtual devices: tried with this crate, and their code keeps to its own memory.
static VIRTUAL: [Driver; 7] = [
    Driver {
        name: "net_null",
        fresh_mbufs: true,
        // The driver's frames have the length in `size=`, which `start` checks.
        valid_lengths: true,
        sends_chains: true,
        missed: Missed::Driver,
        refused: &[("copy", Some("0"), "the driver would read past the end of short packets")],
        has_own_mac: false,
        ..UNKNOWN
    },
    Driver {
        // The driver passes on the very mbufs that were sent.
        name: "net_ring",
        valid_lengths: true,
        sends_chains: true,
        held_count: 1024,
        missed: Missed::Driver,
        refused: &[
            ("nodeaction", None, "two ports on one ring free it under each other"),
            ("internal", None, "it is an address in this process's memory"),
        ],
        has_own_mac: false,
        ..UNKNOWN
    },
    Driver {
        // For a record of more than 65,535 bytes, the chain may hold less than the head's length:
        // the driver counts the rest to copy in 16 bits.
        name: "net_pcap",
        fresh_mbufs: true,
        sends_chains: true,
        missed: Missed::Driver,
        reopens: true,
        more_queues: " (one rx_pcap= or tx_pcap= for each)",
        has_own_mac: false,
        ..UNKNOWN
    },
    Driver {
        name: "net_af_packet",
        fresh_mbufs: true,
        sends_chains: true,
        loses_taken: true,
        queues: Queues::All,
        missed: Missed::PacketSockets,
        reopens: true,
        cuts_frames: true,
        more_queues: " (qpairs=)",
        ..UNKNOWN
    },
    Driver {
        // The driver copies the whole packet's length from the first segment.
        name: "net_af_xdp",
        fresh_mbufs: true,
        held_count: 4096,
        keeps_mbufs: true,
        refused: &[
            ("shared_umem", Some("0"), "two ports would share memory of one of them"),
            ("use_cni", Some("0"), PLUGIN),
            ("use_pinned_map", Some("0"), PLUGIN),
        ],
        queues: Queues::All,
        // Not reopened: the driver keeps its socket after it was closed, and can't make another.
        missed: Missed::XdpSockets,
        more_queues: " (queue_count=)",
        ..UNKNOWN
    },
    Driver {
        name: "net_tap",
        fresh_mbufs: true,
        sends_chains: true,
        queues: Queues::Paired,
        missed: Missed::Interface,
        ..UNKNOWN
    },
    Driver {
        name: "net_memif",
        fresh_mbufs: true,
        sends_chains: true,
        forgets_counts: true,
        trusts_peer: true,
        // Packets without room stay with the peer that sends them.
        missed: Missed::Driver,
        has_own_mac: false,
        ..UNKNOWN
    },
];

/// The driver of the virtual device with this name. DPDK selects it by the same prefix.
pub(crate) fn of_virtual(device_name: &str) -> Option<&'static Driver> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    VIRTUAL
        .iter()
        .find(|driver| device_name.starts_with(driver.name))
        .filter(|_| device_name.bytes().all(word))
}

/// The driver of a port, by DPDK's name for it.
pub(crate) fn of_port(driver_name: &str) -> &'static Driver {
    let known = VIRTUAL.iter().find(|driver| driver.name == driver_name);
    let nic = || nics::FRESH.iter().find(|(name, ..)| *name == driver_name);
    known.or_else(|| nic().map(|(.., driver)| *driver)).unwrap_or(&UNKNOWN)
}

/// The prefixes of virtual devices' names.
pub(crate) fn virtual_names() -> String {
    VIRTUAL.iter().map(|driver| driver.name).collect::<Vec<_>>().join(", ")
}
