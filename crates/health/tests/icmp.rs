//! ICMP: an echo request over the loopback, if this process may send one.

use super::server::{V4, loopbacks};
use super::{PATIENT_MS, run};
use hotloop_health::settings::Probe;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::thread;

const NOT_PERMITTED: &str = "this process may not send ICMP echo requests; give it CAP_NET_RAW, or \
                             its group a place in net.ipv4.ping_group_range";

#[test]
fn a_host_that_answers_passes() {
    for address in loopbacks() {
        match run(address, 0, Probe::Icmp, PATIENT_MS) {
            Ok(_) => {}
            Err(why) if why == NOT_PERMITTED => eprintln!("skipped: {why}"),
            Err(why) => panic!("{address}: {why}"),
        }
    }
}

#[test]
fn a_missing_permission_to_send_is_reported_with_a_remedy() {
    // Each thread has its own capabilities.
    let outcome = thread::spawn(|| {
        let none = CapabilitySet::empty();
        set_capabilities(
            None,
            CapabilitySets { effective: none, permitted: none, inheritable: none },
        )
        .unwrap();
        run(V4, 0, Probe::Icmp, PATIENT_MS)
    });
    match outcome.join().unwrap() {
        Ok(_) => eprintln!("skipped: net.ipv4.ping_group_range lets everybody send"),
        Err(why) => assert_eq!(why, NOT_PERMITTED),
    }
}
