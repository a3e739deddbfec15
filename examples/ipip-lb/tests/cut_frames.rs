//! Packets that the kernel assembles and a device then cuts: they have a drop reason of their own,
//! and one warning.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::namespace::{BALANCER, dns, start};
use hotloop::packet::build::{tcp, udp};
use hotloop_tests::network::{Network, Peer};
use hotloop_tests::wait_until;
use serde_json::json;

/// With several queues, every version of the driver makes the kernel assemble fragments.
const PORT: &str = r#"
[[port]]
name = "uplink"
device = "net_af_packet0,iface=a,qpairs=2"
accept_any_mac = true
next_hop_mac = "02:00:00:00:00:01"
"#;

const WARNING: &str = "cuts them to 1982 bytes";

#[test]
fn cut_packets_are_dropped_as_truncated_and_one_warning_says_what_to_do() {
    let made = Network::enter().and_then(|network| network.pair("a", "b").map(|()| network));
    let _network = match made {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let config = [BALANCER, PORT].concat() + &dns("dns", "203.0.113.10", &["10.0.0.1"]);
    let folder = tempfile::tempdir().unwrap();
    let mut peer = Peer::new("b");
    for (has_cut, frames) in [
        // A frame with a wrong length from a host isn't cut by the device.
        (false, vec![tcp().to("203.0.113.10:80").payload([7; 900]).build()[..500].to_vec(); 20]),
        (true, {
            let datagram = |id| udp().to("203.0.113.10:53").payload([7; 3000]).identification(id);
            (0..20).flat_map(|id| datagram(id).build_fragments(1400)).collect()
        }),
    ] {
        let program = start(folder.path(), &config);
        peer.send(frames.iter().map(Vec::as_slice));
        let received = || program.ask("counters")?["received"].as_u64();
        wait_until("they were received", || received() >= Some(20));
        let (report, errors) = program.end();
        assert_eq!(report["dropped"], json!({"truncated": 20}), "{report}");
        assert_eq!(errors.matches(WARNING).count(), usize::from(has_cut), "{errors}");
        assert_eq!(errors.contains("ethtool -K IFACE gro off lro off"), has_cut, "{errors}");
    }
}
