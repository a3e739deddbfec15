//! Arguments of both programs.

use clap::{Args, ValueEnum};
use hotloop::engine::{Placement, Topology};
use hotloop_ops::{Failure, RunArgs};
use std::path::Path;

/// Arguments of both programs.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// How packets are sent or received [default: dpdk with --port, kernel without].
    #[arg(long, value_enum, value_name = "WAY")]
    pub io: Option<Io>,
    /// With dpdk: the device, a virtual one by its device string (net_memif0,role=server,...), one on
    /// the PCI bus by its address (0000:01:00.0).
    #[arg(long, value_name = "DEVICE")]
    pub port: Option<String>,
    /// With dpdk: queues of the device, each with a core of its own [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=120))]
    pub queues: Option<u16>,
    /// With kernel: threads [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=120))]
    pub threads: Option<u16>,
    /// The CPUs that cores, or threads, are pinned to, one for each [default: CPUs that are free with
    /// dpdk, none with kernel].
    #[arg(long, value_name = "CPU,CPU", value_delimiter = ',')]
    pub cpus: Vec<usize>,
    /// Arguments of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// The load to send, for both programs.
#[derive(Args, Clone, Debug)]
pub struct Load {
    /// Datagrams a second, over all cores; without it, as fast as possible.
    #[arg(long, value_name = "PPS", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub rate: Option<u64>,
    /// Flows, which differ in their source ports, up to 65535, and beyond that in their source addresses
    /// [default: 64].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    flows: Option<u32>,
    /// Bytes of payload in each datagram; 32 make frames of 74 bytes over IPv4 [default: 32].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(0..=1452))]
    payload: Option<u16>,
}

impl Load {
    /// Number of flows.
    #[must_use]
    pub fn flow_count(&self) -> u32 {
        self.flows.unwrap_or(64)
    }

    /// Bytes of payload in each datagram.
    #[must_use]
    pub fn payload_bytes(&self) -> u16 {
        self.payload.unwrap_or(32)
    }

    /// Whether the command line sets any of these.
    #[must_use]
    pub const fn is_given(&self) -> bool {
        self.rate.is_some() || self.flows.is_some() || self.payload.is_some()
    }
}

/// Values of `--io`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Io {
    /// The kernel's sockets.
    Kernel,
    /// A device of DPDK.
    Dpdk,
}

/// How packets are sent or received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way<'a> {
    /// Through the kernel's sockets.
    Kernel,
    /// Through this device of DPDK.
    Dpdk(&'a str),
}

impl Common {
    /// Whether packets go through the kernel or a device.
    ///
    /// # Errors
    /// [`Failure::Input`] if the arguments contradict each other.
    pub fn way(&self) -> Result<Way<'_>, Failure> {
        let wrong = |message: &str| Err(Failure::Input(message.to_owned()));
        let way = match (self.io, &self.port) {
            (Some(Io::Kernel), Some(_)) => {
                return wrong("--port names a device of DPDK: leave it out, or give --io dpdk");
            }
            (Some(Io::Dpdk), None) => {
                return wrong(
                    "--io dpdk needs a device: --port net_memif0,role=server, or an address on the PCI bus",
                );
            }
            (_, Some(port)) => Way::Dpdk(port),
            (_, None) => Way::Kernel,
        };
        match way {
            Way::Kernel if self.queues.is_some() => {
                wrong("--queues is for devices of DPDK: give --port too, or use --threads")
            }
            Way::Kernel if !self.run.eal.is_empty() => {
                wrong("arguments of DPDK's environment need a device of DPDK: give --port too")
            }
            Way::Dpdk(_) if self.threads.is_some() => {
                wrong("--threads is for the kernel's sockets: use --queues with --port")
            }
            _ => Ok(way),
        }
    }

    /// Number of cores, or threads.
    #[must_use]
    pub fn core_count(&self) -> usize {
        usize::from(self.queues.or(self.threads).unwrap_or(1))
    }

    /// The CPUs for `core_count` cores. `None` if threads of the kernel's sockets may run anywhere.
    ///
    /// # Errors
    /// A CPU that can't be used, or a number of CPUs that differs from that of cores.
    pub fn placement(&self, way: Way<'_>, core_count: usize) -> Result<Option<Placement>, Failure> {
        let count = self.cpus.len();
        if count == 0 {
            return Ok((way == Way::Kernel).then(|| Placement::anywhere(core_count)));
        }
        if count != core_count {
            return Err(Failure::Input(format!(
                "--cpus names {count}: name one for each of {core_count} cores"
            )));
        }
        let topology = Topology::read(Path::new("/"));
        let placement = Placement::explicit(&topology, &self.cpus);
        placement.map(Some).map_err(|error| Failure::Input(format!("--cpus: {error}")))
    }
}
