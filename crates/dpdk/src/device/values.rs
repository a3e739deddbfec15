//! Checks of argument values that the drivers themselves don't check.

use super::DeviceString;
use hotloop_dpdk_sys as sys;
use std::ffi::CString;
use std::fs;

/// The problem with a value, and its remedy.
type Wrong = (String, String);

/// Maximum size in bytes of a net_af_packet device's rings. The kernel fills them with zeroes
/// before the device comes up, in pages that it never swaps out.
const RINGS_BYTES_MAX: u128 = 1 << 30;

/// Checks the values of the arguments.
pub(super) fn check(driver: &str, device: &DeviceString) -> Result<(), Wrong> {
    match driver {
        "net_af_packet" => check_rings(device),
        "net_pcap" => check_endless(device),
        _ => Ok(()),
    }
}

/// Two rings, one for each direction, for each pair of queues (packet(7), `PACKET_RX_RING`). The
/// driver takes any number, and reads a malformed one as 0 or as another number (atoi(3)).
fn check_rings(device: &DeviceString) -> Result<(), Wrong> {
    let number = |key, default| {
        let Some(value) = device.argument(key) else { return Ok(default) };
        positive(value).ok_or_else(|| {
            let max = i32::MAX;
            let problem = format!("its argument \"{key}={value}\" is no number from 1 to {max}");
            (problem, format!("leave it out, or write {key}={default}, which is the default"))
        })
    };
    let page_bytes = u32::try_from(rustix::param::page_size()).unwrap_or(4096);
    let (pair_count, block_bytes) = (number("qpairs", 1)?, number("blocksz", page_bytes)?);
    let (frame_bytes, frame_count) = (number("framesz", 2048)?, number("framecnt", 512)?);
    if block_bytes % frame_bytes != 0 {
        return Err((
            format!(
                "its blocks of {block_bytes} bytes don't hold a whole number of frames of {frame_bytes}"
            ),
            "choose a multiple of framesz= as blocksz=".into(),
        ));
    }
    let block_count = frame_count / (block_bytes / frame_bytes);
    let bytes = [2, pair_count, block_bytes, block_count].map(u128::from).iter().product::<u128>();
    if bytes > RINGS_BYTES_MAX {
        return Err((
            format!(
                "its rings would take {bytes} bytes: 2 x {pair_count} queue pairs x {block_count} blocks \
                 of {block_bytes} bytes; at most {RINGS_BYTES_MAX} are possible"
            ),
            "choose smaller values of qpairs=, framesz=, framecnt= or blocksz=".into(),
        ));
    }
    Ok(())
}

/// `infinite_rx` must be 0 or 1, and be given once: the driver takes other words for 0, and ignores
/// two of them.
fn check_endless(device: &DeviceString) -> Result<(), Wrong> {
    let mut given = device.arguments().filter(|(key, _)| *key == "infinite_rx");
    match (given.next(), given.next()) {
        (None, _) | (Some((_, "0" | "1")), None) => Ok(()),
        _ => Err((
            "its argument \"infinite_rx\" is neither 0 nor 1, or is there twice".into(),
            "write infinite_rx=1 once, or leave it out".into(),
        )),
    }
}

/// Checks that each capture that will be received over and over has a packet: without one, the
/// driver takes mbufs at each poll and returns none of them.
///
/// The caller opens the device next: the driver reads the same files, unless somebody replaces them
/// meanwhile.
pub(crate) fn check_captures(device: &DeviceString) -> Result<(), Wrong> {
    if device.argument("infinite_rx") != Some("1") {
        return Ok(());
    }
    for (_, path) in device.arguments().filter(|(key, _)| *key == "rx_pcap") {
        // The driver reads the file twice, which only works with regular files.
        let is_other = fs::metadata(path).is_ok_and(|found| !found.is_file());
        let Ok(text) = CString::new(path) else { continue };
        // SAFETY: 1. A C string.
        if is_other || unsafe { sys::sh_capture_is_empty(text.as_ptr()) } {
            return Err((
                format!(
                    "\"{path}\" is no capture file with a packet, so there is nothing to repeat"
                ),
                "give rx_pcap= a capture with a packet, or leave infinite_rx= out".into(),
            ));
        }
    }
    Ok(())
}

/// A number of decimal digits only, as read by atoi(3).
fn positive(text: &str) -> Option<u32> {
    let number = text.parse::<i32>().ok().filter(|number| *number > 0)?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then_some(number.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rings_of_af_packet_have_a_limit() {
        let parse =
            |arguments: &str| DeviceString::parse(&format!("net_af_packet0,iface=lo,{arguments}"));
        for (arguments, expected) in [
            (
                "blocksz=2147479552,framesz=2147479552",
                "would take 2199019061248 bytes: 2 x 1 queue",
            ),
            ("framecnt=524288,blocksz=8192", "would take 2147483648 bytes"),
            ("qpairs=4096", "at most 1073741824 are possible"),
            ("framecnt=262144,qpairs=2", "choose smaller values of qpairs="),
            ("blocksz=8192,framesz=3072", "whole number of frames of 3072"),
            ("framesz=8192", "whole number"),
            ("qpairs=0", "\"qpairs=0\" is no number from 1 to 2147483647"),
            ("framecnt=-1", "write framecnt=512"),
            ("framecnt=+512", "is no number"),
            ("framesz=2147483648", "is no number"),
            ("blocksz=4k", "is no number"),
        ] {
            let message = parse(arguments).unwrap_err().to_string();
            assert!(message.contains(expected), "{arguments}: {message}");
        }
        for arguments in ["qpairs=1", "framecnt=262144", "blocksz=1048576,framesz=65536,qpairs=16"]
        {
            assert!(parse(arguments).is_ok(), "{arguments}");
        }
    }

    #[test]
    fn a_capture_is_endless_or_not() {
        let parse = |arguments: &str| DeviceString::parse(&format!("net_pcap0,{arguments}"));
        for endless in ["infinite_rx=yes", "infinite_rx=2", "infinite_rx=1,infinite_rx=1"] {
            let message = parse(endless).unwrap_err().to_string();
            assert!(message.contains("neither 0 nor 1, or is there twice"), "{message}");
        }
        assert!(parse("rx_pcap=a,infinite_rx=0").unwrap().reads_file());
        assert!(!parse("rx_pcap=a,infinite_rx=1").unwrap().reads_file());
    }
}
