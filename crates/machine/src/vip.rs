//! Checks the addresses of services.

use super::finding::Verdict;
use super::machine::Machine;
use super::root::{Root, Unread};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The flag of a route to this machine itself: RTF_LOCAL in linux/ipv6_route.h.
const RTF_LOCAL: u32 = 0x8000_0000;

/// Whether the kernel takes a VIP for an address of its own.
pub(super) fn local(machine: &Machine, vip: IpAddr) -> Result<Verdict, Unread> {
    let is_local = match vip {
        IpAddr::V4(vip) => is_local_v4(&machine.root, vip)?,
        IpAddr::V6(vip) => is_local_v6(&machine.root, vip)?,
    };
    if !is_local {
        return Ok(Verdict::ok(format!("{vip} is no address of this machine")));
    }
    Ok(Verdict::safety(
        format!("the VIP {vip} is an address of this machine"),
        "the kernel answers the clients' SYNs with RST wherever it sees them, too: connections are refused \
         at once",
        format!("ip -br address | grep {vip}; ip address del {vip}/<LENGTH> dev <INTERFACE>"),
    ))
}

/// Whether a local prefix covers an address. In fib_trie, a line with an address precedes the
/// lengths and types of its routes: proc(5).
fn is_local_v4(root: &Root, vip: Ipv4Addr) -> Result<bool, Unread> {
    let path = "proc/net/fib_trie";
    let text = root.text(path)?;
    let mut address: Option<Ipv4Addr> = None;
    let mut is_read = false;
    for line in text.lines().map(str::trim_start) {
        if let Some(text) = line.strip_prefix("|-- ") {
            address = text.trim().parse().ok();
        } else if let (Some(route), Some(address)) = (line.strip_prefix('/'), address) {
            is_read = true;
            let mut words = route.split_whitespace();
            let length: Option<u32> = words.next().and_then(|word| word.parse().ok());
            let Some(length @ 0..=32) = length else { continue };
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            if words.any(|word| word == "LOCAL") && (vip.to_bits() ^ address.to_bits()) & mask == 0
            {
                return Ok(true);
            }
        }
    }
    // A network namespace has at least the routes of its loopback.
    if is_read { Ok(false) } else { Err(Unread::new(format!("/{path} has no routes"))) }
}

/// Whether a local prefix covers an address. Each line of ipv6_route is hexadecimal: a prefix and
/// its length, three more addresses and lengths, three counts, the flags and the interface.
fn is_local_v6(root: &Root, vip: Ipv6Addr) -> Result<bool, Unread> {
    let path = "proc/net/ipv6_route";
    let text = match root.text(path) {
        // Without IPv6, the kernel has no such address.
        Err(unread) if unread.is_missing && root.has("proc/net/fib_trie") => return Ok(false),
        text => text?,
    };
    let prefix = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [prefix, length, .., flags, _] = words[..] else { return None };
        let prefix = u128::from_str_radix(prefix, 16).ok()?;
        let length = u32::from_str_radix(length, 16).ok().filter(|length| *length <= 128)?;
        Some((prefix, length, u32::from_str_radix(flags, 16).ok()?))
    };
    for line in text.lines() {
        let odd = || Unread::new(format!("/{path}: {line:?} is no route"));
        let (prefix, length, flags) = prefix(line).ok_or_else(odd)?;
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        if flags & RTF_LOCAL != 0 && (vip.to_bits() ^ prefix) & mask == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
