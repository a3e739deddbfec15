//! The kernel's losses at sockets with full buffers.

use std::fs;
use std::io;

/// Counters of a network namespace and of sockets in it, from /proc.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct KernelLoss {
    /// Datagrams that these sockets had no room for.
    pub socket_drops: u64,
    /// Datagrams that any socket of the namespace had no room for: `RcvbufErrors` of UDP over IPv4 and IPv6.
    pub receive_buffer_errors: u64,
}

impl KernelLoss {
    /// The current counts for the sockets with these inodes, in the calling thread's network
    /// namespace.
    ///
    /// # Errors
    /// If `/proc` is not mounted.
    pub fn read(inodes: &[u64]) -> io::Result<Self> {
        let udp = fs::read_to_string("/proc/thread-self/net/udp")?;
        // Without IPv6, the kernel has neither file.
        let udp6 = fs::read_to_string("/proc/thread-self/net/udp6").unwrap_or_default();
        let snmp6 = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
        let snmp = fs::read_to_string("/proc/thread-self/net/snmp")?;
        Ok(Self {
            socket_drops: [udp, udp6].iter().map(|table| drops(table, inodes)).sum(),
            receive_buffer_errors: errors_v4(&snmp) + errors_v6(&snmp6),
        })
    }

    /// The losses since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            socket_drops: self.socket_drops.saturating_sub(before.socket_drops),
            receive_buffer_errors: self
                .receive_buffer_errors
                .saturating_sub(before.receive_buffer_errors),
        }
    }
}

/// The drops of sockets with these inodes: the last column of lines with the inode in the tenth.
fn drops(table: &str, inodes: &[u64]) -> u64 {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let inode: u64 = words.nth(9)?.parse().ok()?;
        let drops: u64 = words.last()?.parse().ok()?;
        inodes.contains(&inode).then_some(drops)
    };
    table.lines().skip(1).filter_map(of_line).sum()
}

/// A line of names, and a line of numbers below it.
fn errors_v4(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, numbers) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut columns = names.split_whitespace().zip(numbers.split_whitespace());
    let number = columns.find(|(name, _)| *name == "RcvbufErrors").map(|(_, number)| number);
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn errors_v6(snmp6: &str) -> u64 {
    let mut lines = snmp6.lines().filter_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
    lines.next().and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  104: 00000000:10E1 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 ffff88810a5a5000 17
  104: 0100007F:10E1 00000000:0000 07 00000000:00034500 00:00000000 00000000     0        0 4712 2 ffff88810a5a5a00 5
";

    #[test]
    fn drops_are_those_of_the_sockets_asked_for() {
        assert_eq!((drops(UDP, &[4711]), drops(UDP, &[4711, 4712]), drops(UDP, &[1])), (17, 22, 0));
        assert_eq!(drops("", &[4711]), 0);
    }

    #[test]
    fn errors_are_found_by_name() {
        let snmp = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
                    Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
                    Udp: 100 2 3 400 42 6\nUdpLite: InDatagrams RcvbufErrors\nUdpLite: 0 9\n";
        assert_eq!((errors_v4(snmp), errors_v4("")), (42, 0));
        let snmp6 = "Udp6InDatagrams                 \t7\nUdp6RcvbufErrors                \t3\n";
        assert_eq!((errors_v6(snmp6), errors_v6("")), (3, 0));
    }

    #[test]
    fn this_machine_has_the_files() {
        let loss = KernelLoss::read(&[]).unwrap();
        assert_eq!(loss.since(loss), KernelLoss::default());
    }
}
