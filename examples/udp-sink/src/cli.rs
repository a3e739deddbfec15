//! The sink's command line.

use crate::arguments::Common;
use crate::ports::Ports;
use clap::Parser;

/// Receives UDP datagrams and prints each second how many came: millions of packets, payload in
/// 2^20 bytes, payload in 10^6 bits. Ends with a summary. With --report json, the lines of each second
/// go to standard error.
#[derive(Clone, Debug, Parser)]
#[command(name = "udp-sink", version, after_help = "udp-sink ctl --help: asking one that runs.")]
pub struct Cli {
    /// What the source takes too.
    #[command(flatten)]
    pub common: Common,
    /// The destination ports that are counted: numbers and ranges, such as 53,8000-8099.
    #[arg(long, value_name = "PORTS", default_value = "9000")]
    pub udp_port: Ports,
    /// Print a line for each queue too.
    #[arg(long)]
    pub per_queue: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_ops::{Failure, ReportFormat, parse};
    use std::time::Duration;

    fn read(line: &str) -> Result<Cli, Failure> {
        parse(std::iter::once("udp-sink").chain(line.split_whitespace()))
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let cli = read("--port net_null0").unwrap();
        assert_eq!((cli.common.port.as_str(), cli.common.queues), ("net_null0", 1));
        assert!(cli.udp_port.contains(9000) && !cli.udp_port.contains(9001));
        assert_eq!((cli.common.run.duration, cli.common.run.report), (None, ReportFormat::Text));
    }

    #[test]
    fn everything_can_be_said() {
        let line = "--port net_null0,size=60 --queues 2 --udp-port 53,8000-8099 --per-queue \
                    --duration 0.5 --report json -- -l 0-1";
        let cli = read(line).unwrap();
        assert_eq!((cli.common.queues, cli.per_queue), (2, true));
        assert!(cli.udp_port.contains(53) && cli.udp_port.contains(8099));
        assert_eq!(cli.common.run.duration, Some(Duration::from_millis(500)));
        assert_eq!((cli.common.run.report, cli.common.run.eal.len()), (ReportFormat::Json, 2));
    }

    #[test]
    fn a_wrong_argument_is_named_on_one_line_with_what_to_write() {
        for (line, expected) in [
            ("", "--port <DEVICE>"),
            ("--port", "a value is required"),
            ("--port a --queues 0", "0 is not in 1..=120"),
            ("--port a --queues many", "invalid digit"),
            ("--port a --udp-port 70000", "70000"),
            ("--port a --udp-port 9-8", "9-8"),
            ("--port a --udp-port 53,,54", "1 to 65535"),
            ("--port a --duration 0", "number of seconds above 0"),
            ("--port a --duration -1", "number of seconds above 0"),
            ("--port a --report xml", "text, json"),
            ("--port a net_null0", "unexpected argument 'net_null0'"),
            ("--prot a", "--prot"),
        ] {
            let Err(Failure::Input(message)) = read(line) else { panic!("{line}") };
            assert!(message.contains(expected), "{line}: {message}");
            assert!(!message.contains('\n') && message.contains("--help"), "{message}");
        }
        assert!(matches!(read("--help"), Err(Failure::Help(text)) if text.contains("--udp-port")));
    }
}
