//! Checks that DPDK parses device strings in the same way as this crate: for tests and the fuzzer.

use super::DeviceString;
use hotloop_dpdk_sys as sys;
use std::ffi::{CStr, c_char, c_void};

/// Checks that DPDK's own parser finds exactly the checked arguments in an accepted device string.
/// DPDK never sees a refused string.
///
/// # Panics
/// If DPDK finds others.
#[doc(hidden)]
pub fn check_device_string(text: &str) {
    let Ok(device) = DeviceString::parse(text) else { return };
    let [_, name, arguments] = device.for_hotplug();
    assert_eq!(name.to_str(), Ok(device.name()));
    for other_device in ["/bus=", "/class=", "/driver="] {
        assert!(!device.text().contains(other_device), "{text:?} starts another device");
    }
    let Some(found) = dpdk_finds(&arguments) else {
        // DPDK refuses this number of arguments, and so the device.
        assert!(device.arguments().count() > sys::SH_KVARGS_MAX as usize, "{text:?}");
        return;
    };
    let has_value = |(_, value): (&str, &str)| !value.is_empty();
    assert!(device.arguments().all(has_value), "{text:?}");
    let checked = device.arguments().map(|(key, value)| (key.to_owned(), Some(value.to_owned())));
    assert_eq!(found, checked.collect::<Vec<_>>(), "{text:?}");
}

type Pairs = Vec<(String, Option<String>)>;

/// The arguments that drivers get; `None` if DPDK refuses them.
fn dpdk_finds(arguments: &CStr) -> Option<Pairs> {
    let mut found = Pairs::new();
    let cookie = (&raw mut found).cast();
    // SAFETY: 1. rte_kvargs.h: copies the string, which ends with a zero byte. 2. `add` has the
    // declared type, gets `found`, and doesn't unwind.
    let result = unsafe { sys::sh_kvargs(arguments.as_ptr(), Some(add), cookie) };
    (result == 0).then_some(found)
}

unsafe extern "C" fn add(found: *mut c_void, key: *const c_char, value: *const c_char) {
    let pair = (text(key).unwrap_or_default(), text(value));
    // SAFETY: 1. `dpdk_finds` passes its own `Pairs`, and uses them only after the call.
    unsafe { &mut *found.cast::<Pairs>() }.push(pair);
}

fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: 1. rte_kvargs.h: keys and values are strings in the list's copy, which lives during the
    // call of `add`.
    let text = unsafe { CStr::from_ptr(pointer) };
    Some(text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dpdk_finds_what_was_checked() {
        for text in [
            "net_null0",
            "net_null0,",
            "net_null0,size=64,,copy=0",
            "net_null0,no-rx=1",
            "net_pcap0,rx_pcap=/a/b.pcap,rx_pcap=c,tx_pcap=d",
            "net_memif0,role=server,socket=/tmp/a,socket-abstract=no",
            "0000:01:00.0,a=1",
        ] {
            assert!(DeviceString::parse(text).is_ok(), "{text}");
            check_device_string(text);
        }
        let many = "net_null0".to_owned() + &",size=64".repeat(40);
        check_device_string(&many);
    }

    /// With the looser parser from before values were restricted.
    #[test]
    fn what_dpdk_would_find_more_in_is_noticed() {
        let found = dpdk_finds(c"no-rx=size=60000").unwrap();
        assert_ne!(found, [("no-rx".to_owned(), Some("size=60000".to_owned()))]);
    }
}
