//! The sink's command line.

use crate::address::Address;
use crate::arguments::{Common, Load, Way};
use crate::inspect::Questions;
use crate::sink::ports::Ports;
use crate::sink::sockets::SocketOptions;
use crate::sink::with_source;
use clap::Parser;
use hotloop::engine::Deployment;
use hotloop_ops::Failure;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Maximum number of sockets.
const SOCKET_COUNT_MAX: usize = 4_096;

/// Receives UDP datagrams and prints each second how many came: millions of packets, payload in
/// 2^20 bytes, payload in 10^6 bits. Ends with a summary. With --report json, the lines of each
/// second go to standard error.
///
/// Listens on the kernel's sockets, or on a device of DPDK with --port.
#[derive(Clone, Debug, Parser)]
#[command(name = "udp-sink", version, after_help = "udp-sink ctl --help: asking one that runs.")]
pub struct Cli {
    /// With kernel: addresses to listen on, such as 192.0.2.1, 192.0.2.1:53, `[2001:db8::1]:53`, or
    /// the address of a multicast group [default: 0.0.0.0]. With dpdk, any address is received.
    #[arg(value_name = "ADDRESS[:PORT]")]
    pub addresses: Vec<Address>,
    /// Arguments of both programs.
    #[command(flatten)]
    pub common: Common,
    /// The destination ports to count, for all addresses without one: numbers and ranges, such as
    /// 53,8000-8099.
    #[arg(long, value_name = "PORTS", default_value = "4321")]
    pub udp_port: Ports,
    /// With dpdk: hand each flow to one of this many workers, on cores of their own, by a hash of
    /// addresses and ports: for devices without RSS.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=120))]
    pub workers: Option<u16>,
    /// With kernel: each thread has a socket of its own for each address, and the kernel spreads flows over
    /// them by their addresses and ports.
    #[arg(long)]
    pub reuseport: bool,
    /// With kernel: the size of each socket's buffer in bytes, as counted by the kernel
    /// (SO_RCVBUF).
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub receive_buffer: Option<u32>,
    /// Find lost, duplicated and reordered datagrams among those that udp-source numbers, in this
    /// many flows: 1 KiB of memory per flow and core.
    #[arg(long, value_name = "FLOWS", num_args = 0..=1, require_equals = true, default_missing_value = "1024", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub verify: Option<u32>,
    /// Measure the latency of datagrams from a udp-source on the same machine.
    #[arg(long)]
    pub latency: bool,
    /// Receive datagrams that another core of the program sends, over a ring in memory (net_ring):
    /// needs no system calls and no device.
    #[arg(long, conflicts_with_all = ["addresses", "io", "port", "queues", "threads", "reuseport", "receive_buffer"])]
    pub with_source: bool,
    /// The load that this core sends.
    #[command(flatten)]
    pub load: Load,
    /// Also print a line for each queue or thread.
    #[arg(long)]
    pub per_queue: bool,
}

impl Cli {
    /// Whether packets come through the kernel or a device.
    ///
    /// # Errors
    /// [`Failure::Input`] if the arguments contradict each other.
    pub fn way(&self) -> Result<Way<'_>, Failure> {
        if !self.with_source && self.load.is_given() {
            let message = "--rate, --flows and --payload say what --with-source sends: give that too, or leave them out";
            return Err(Failure::Input(message.to_owned()));
        }
        if self.workers.is_some() && (self.with_source || self.common.port.is_none()) {
            let message = "--workers is for a device: give --port too, or use --threads";
            return Err(Failure::Input(message.to_owned()));
        }
        if self.with_source {
            return Ok(Way::Dpdk(with_source::DEVICE));
        }
        let way = self.common.way()?;
        let is_kernel = way == Way::Kernel;
        let of_kernel = [
            ("addresses", !self.addresses.is_empty()),
            ("--reuseport", self.reuseport),
            ("--receive-buffer", self.receive_buffer.is_some()),
        ];
        match of_kernel.iter().find(|(_, is_given)| *is_given && !is_kernel) {
            Some((name, _)) => Err(Failure::Input(format!(
                "{name}: only with the kernel's sockets, without --port; a device receives for any address"
            ))),
            None => Ok(way),
        }
    }

    /// Number of cores, or threads.
    #[must_use]
    pub fn core_count(&self) -> usize {
        let workers = self.workers.map_or(0, usize::from);
        if self.with_source { with_source::CORE_COUNT } else { self.common.core_count() + workers }
    }

    /// The roles of the cores.
    #[must_use]
    pub fn deployment(&self) -> Deployment {
        match self.workers {
            Some(workers) => Deployment::pipeline([self.common.core_count(), usize::from(workers)]),
            None => Deployment::run_to_completion(self.core_count()),
        }
    }

    /// Number of cores that deliver datagrams.
    #[must_use]
    pub fn delivering_count(&self) -> usize {
        self.workers.map_or_else(|| self.common.core_count(), usize::from)
    }

    /// The addresses of sockets.
    ///
    /// # Errors
    /// [`Failure::Input`] if there would be too many.
    pub fn listen_on(&self) -> Result<Vec<SocketAddr>, Failure> {
        let any = Address { ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED), port: None };
        let addresses = if self.addresses.is_empty() { vec![any] } else { self.addresses.clone() };
        let ports_of =
            |address: &Address| address.port.map_or_else(|| self.udp_port.all(), |port| vec![port]);
        let all: Vec<_> = addresses
            .iter()
            .flat_map(|address| {
                ports_of(address).into_iter().map(|port| SocketAddr::new(address.ip, port))
            })
            .collect();
        let threads = if self.reuseport { self.common.core_count() } else { 1 };
        let count = all.len() * threads;
        if count > SOCKET_COUNT_MAX {
            return Err(Failure::Input(format!(
                "{count} sockets: at most {SOCKET_COUNT_MAX}; name fewer ports by --udp-port"
            )));
        }
        Ok(all)
    }

    /// Options for opening sockets.
    #[must_use]
    pub fn socket_options(&self) -> SocketOptions {
        SocketOptions {
            reuseport: self.reuseport,
            receive_buffer_bytes: self.receive_buffer.map(|bytes| bytes as usize),
        }
    }

    /// The questions about datagrams.
    #[must_use]
    pub fn questions(&self) -> Questions {
        let verified_flows = self.verify.map(|count| count as usize);
        Questions { verified_flows, latency: self.latency }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_ops::{ReportFormat, parse};
    use std::time::Duration;

    fn read(line: &str) -> Result<Cli, Failure> {
        let cli: Cli = parse(std::iter::once("udp-sink").chain(line.split_whitespace()))?;
        cli.way()?;
        cli.listen_on()?;
        Ok(cli)
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let cli = read("--port net_null0").unwrap();
        assert_eq!((cli.way().unwrap(), cli.common.core_count()), (Way::Dpdk("net_null0"), 1));
        assert!(cli.udp_port.contains(4321) && !cli.udp_port.contains(4322));
        assert_eq!((cli.common.run.duration, cli.common.run.report), (None, ReportFormat::Text));
        let cli = read("").unwrap();
        assert_eq!(cli.way().unwrap(), Way::Kernel);
        assert_eq!(cli.listen_on().unwrap(), ["0.0.0.0:4321".parse().unwrap()]);
        assert!(cli.verify.is_none() && !cli.latency && !cli.reuseport);
    }

    #[test]
    fn everything_can_be_said_of_a_device() {
        let line = "--io dpdk --port net_null0,size=60 --queues 2 --udp-port 53,8000-8099 --per-queue \
                    --duration 0.5 --report json --verify --latency --cpus 0,0 -- -l 0-1";
        let cli = read(line).unwrap();
        assert_eq!((cli.common.core_count(), cli.per_queue, cli.verify), (2, true, Some(1024)));
        assert!(cli.udp_port.contains(53) && cli.udp_port.contains(8099));
        assert_eq!(cli.common.run.duration, Some(Duration::from_millis(500)));
        assert_eq!((cli.common.run.report, cli.common.run.eal.len()), (ReportFormat::Json, 2));
    }

    #[test]
    fn everything_can_be_said_of_sockets() {
        let line = "127.0.0.1 [::1]:53 224.0.0.9 --threads 3 --reuseport --receive-buffer 65536 --udp-port 7-8 \
                    --verify=16";
        let cli = read(line).unwrap();
        let expected = ["127.0.0.1:7", "127.0.0.1:8", "[::1]:53", "224.0.0.9:7", "224.0.0.9:8"];
        assert_eq!(cli.listen_on().unwrap(), expected.map(|address| address.parse().unwrap()));
        assert_eq!((cli.common.core_count(), cli.verify), (3, Some(16)));
    }

    #[test]
    fn a_wrong_argument_is_named_on_one_line_with_what_to_write() {
        for (line, expected) in [
            ("--io dpdk", "--port net_memif0"),
            ("--io kernel --port a", "--io dpdk"),
            ("--queues 2", "--threads"),
            ("--port a --threads 2", "--queues"),
            ("--port a 127.0.0.1", "without --port"),
            ("--port a --reuseport", "without --port"),
            ("--rate 7", "--with-source"),
            ("--workers 2", "--threads"),
            ("--with-source --port a", "cannot be used with"),
            ("-- -l 0", "give --port too"),
            ("--threads 2 --reuseport --udp-port 1-4000", "8000 sockets"),
            ("--port", "a value is required"),
            ("--port a --queues 0", "0 is not in 1..=120"),
            ("--port a --queues many", "invalid digit"),
            ("--port a --udp-port 70000", "70000"),
            ("--port a --udp-port 9-8", "9-8"),
            ("--port a --udp-port 53,,54", "1 to 65535"),
            ("--port a --duration 0", "number of seconds above 0"),
            ("--port a --duration -1", "number of seconds above 0"),
            ("--port a --report xml", "text, json"),
            ("net_null0", "[2001:db8::1]:53"),
            ("--prot a", "--prot"),
        ] {
            let Err(Failure::Input(message)) = read(line) else { panic!("{line}") };
            assert!(message.contains(expected), "{line}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
        assert!(matches!(read("--help"), Err(Failure::Help(text)) if text.contains("--udp-port")));
    }
}
