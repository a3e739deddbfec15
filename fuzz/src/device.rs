//! Device strings, from any bytes that are UTF-8.

/// Checks that DPDK parses an accepted string in the same way.
pub fn run(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        hotloop_dpdk::check_device_string(text);
    }
}
