//! The other end of the wire.

use super::super::run;
use super::PEER;
use super::load::Load;
use hotloop::packet::ethernet::MacAddress;
use hotloop_tests::{Host, tool};

/// A host with the interface `b0`. It sends nothing unasked, and computes its checksums itself.
pub fn start() -> Host {
    let peer = Host::start(&["b0"]);
    peer.does(move || {
        std::fs::write("/proc/sys/net/ipv6/conf/b0/router_solicitations", "0").unwrap();
        let output = tool("ethtool").unwrap().args(["-K", "b0", "tx", "off"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        run("link set dev b0 up");
        for (address, bits) in PEER.iter().zip([24, 64]) {
            run(&format!("address add {address}/{bits} dev b0"));
        }
    });
    peer
}

/// A load to this station, through a neighbour that is never asked for.
pub fn load_to(peer: &Host, station: MacAddress) -> Load {
    peer.does(move || {
        run(&format!("neigh add 192.0.2.9 lladdr {station} nud permanent dev b0"));
        run("route add 203.0.113.0/24 via 192.0.2.9");
        Load::begin()
    })
}
