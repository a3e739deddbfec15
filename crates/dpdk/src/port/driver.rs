//! What is known of drivers that DPDK does not tell.

mod nics;

/// A driver, by what this crate has to do for it to keep its promises.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Driver {
    /// DPDK's name of it.
    pub name: &'static str,
    /// Whether received mbufs always come fresh from the port's own pool. Where they may not, RX
    /// looks whether each is owned by nobody else.
    pub fresh_mbufs: bool,
    /// Whether the lengths of received mbufs agree, whatever is received. Where they may not, since
    /// the driver takes them from what someone else wrote (a file, the kernel, a peer), RX checks
    /// them.
    pub valid_lengths: bool,
    /// Whether it sends chains of any length though it does not offer the offload.
    pub sends_chains: bool,
    /// How many mbufs a TX queue, or the driver for it, holds at most, where that is more than its
    /// descriptors say.
    pub held_count: u16,
    /// Whether it keeps mbufs after it was closed.
    pub keeps_mbufs: bool,
    /// Whether its counters read 0 once its peer has gone: then queues count themselves.
    pub forgets_counts: bool,
    /// Whether another process, at the other end of the device, can crash this one.
    pub trusts_peer: bool,
    /// Whether what a TX queue took and could not send is among its errors, and not among what it
    /// sent.
    pub loses_taken: bool,
    /// How many queues it is configured with.
    pub queues: Queues,
    /// What knows how many packets were lost for want of an RX descriptor.
    pub missed: Missed,
    /// Arguments that are refused: the name, a value that is harmless, and why.
    pub refused: &'static [(&'static str, Option<&'static str>, &'static str)],
    /// Whether frames are sent to an address of its own.
    pub has_own_mac: bool,
    /// Whether it can be closed and opened again while its interface is another one.
    pub reopens: bool,
    /// Whether it hands on frames that the kernel has cut to the size of its ring's.
    pub cuts_frames: bool,
    /// How it is given more queues.
    pub more_queues: &'static str,
}

/// How many queues a device is configured with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Queues {
    /// Those that are claimed.
    Claimed,
    /// As many of one direction as of the other: it starts with nothing else.
    Paired,
    /// All that the device has: packets arrive on each, claimed or not.
    All,
}

impl Queues {
    /// RX and TX queues of a device that has at most `max` of each, of which `claimed` are claimed.
    pub(crate) fn configured(self, claimed: (u16, u16), max: (u16, u16)) -> (u16, u16) {
        match self {
            Self::Claimed => claimed,
            Self::Paired => (claimed.0.max(claimed.1), claimed.0.max(claimed.1)),
            Self::All => max,
        }
    }
}

/// What knows how many packets were lost for want of an RX descriptor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Missed {
    /// The driver.
    Driver,
    /// The kernel, for each packet socket that the driver opens when it is plugged in.
    PacketSockets,
    /// The kernel, for each XDP socket that the driver opens when it starts.
    XdpSockets,
    /// The kernel, for the interface that the driver makes: what it does not take is not sent there.
    Interface,
    /// Nobody, or only in part.
    Unknown,
}

/// What holds for a driver that nobody has looked at.
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

/// Why arguments of net_af_xdp for Kubernetes are refused, which DPDKs later than 22.11 have.
const PLUGIN: &str = "the driver crashes where no device plugin has made its map";

/// Virtual devices: those tried with this crate, whose code keeps to its own memory.
static VIRTUAL: [Driver; 7] = [
    Driver {
        name: "net_null",
        fresh_mbufs: true,
        // Its frames are as long as `size=` says, which `start` checks.
        valid_lengths: true,
        sends_chains: true,
        missed: Missed::Driver,
        refused: &[("copy", Some("0"), "the driver would read past the end of short packets")],
        has_own_mac: false,
        ..UNKNOWN
    },
    Driver {
        // It hands the very mbufs on that were sent.
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
        // Of a record of more than 65,535 bytes, the chain may hold less than the head says: the
        // driver counts what is left to copy in 16 bits.
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
        // It copies as many bytes as the packet has from the first segment.
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
        // Not opened again: it keeps its socket after it was closed, and can make no other.
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
        // What has no room stays with the peer that sends it.
        missed: Missed::Driver,
        has_own_mac: false,
        ..UNKNOWN
    },
];

/// The driver of the virtual device with this name. DPDK picks it by the same prefix.
pub(crate) fn of_virtual(device_name: &str) -> Option<&'static Driver> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    VIRTUAL
        .iter()
        .find(|driver| device_name.starts_with(driver.name))
        .filter(|_| device_name.bytes().all(word))
}

/// The driver that DPDK says a port has.
pub(crate) fn of_port(driver_name: &str) -> &'static Driver {
    let known = VIRTUAL.iter().find(|driver| driver.name == driver_name);
    let nic = || nics::FRESH.iter().find(|(name, ..)| *name == driver_name);
    known.or_else(|| nic().map(|(.., driver)| *driver)).unwrap_or(&UNKNOWN)
}

/// The names that a virtual device's may start with.
pub(crate) fn virtual_names() -> String {
    VIRTUAL.iter().map(|driver| driver.name).collect::<Vec<_>>().join(", ")
}
