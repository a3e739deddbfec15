//! Device strings, by any bytes that are UTF-8.

/// A string that is accepted reaches DPDK as it was understood.
pub fn run(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        hotloop_dpdk::check_device_string(text);
    }
}
