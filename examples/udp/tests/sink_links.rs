//! Interfaces that go down, disappear, or come back while a program runs.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::links::{outage, start, wire};
use hotloop::packet::build::udp;
use hotloop_tests::network::{Peer, ip};
use hotloop_tests::wait_until;
use std::time::Duration;

const SINK: &str = env!("CARGO_BIN_EXE_udp-sink");

#[test]
fn an_interface_that_goes_is_named_in_the_log_in_the_status_and_in_the_report() {
    let folder = tempfile::tempdir().unwrap();
    for device in
        ["net_af_packet0,iface=a", "net_pcap0,iface=a", "net_af_xdp0,iface=a,force_copy=1"]
    {
        let _network = match wire() {
            Ok(network) => network,
            Err(why) => return println!("skipped: {why}"),
        };
        let program = start(SINK, folder.path(), &["--port", device]);
        outage(program, device.split(',').next().unwrap());
    }
}

#[test]
fn an_interface_that_comes_back_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    for (device, reopens) in [
        ("net_af_packet0,iface=a,qpairs=2", true),
        ("net_pcap0,iface=a", true),
        ("net_af_xdp0,iface=a,force_copy=1", false),
    ] {
        let network = match wire() {
            Ok(network) => network,
            Err(why) => return println!("skipped: {why}"),
        };
        let program = start(SINK, folder.path(), &["--port", device]);
        let port = || program.ask("status").unwrap()["devices"][0].take();
        send_datagrams(100);
        wait_until("they are received", || port()["received"] == 100);

        ip(&["link", "delete", "dev", "a"]).unwrap();
        wait_until("it is gone", || port()["link"] == "gone");
        network.pair("a", "b").unwrap();
        if reopens {
            let waited = wait_until("it is back", || port()["link"] == "up");
            println!("{device}: opened again after {waited:?}");
            send_datagrams(100);
            wait_until("they are received", || port()["received"] == 200);
        } else {
            std::thread::sleep(Duration::from_secs(1));
            assert_eq!(port()["link"], "gone", "{device}");
        }
        let (report, errors) = program.end();
        let said = if reopens { "was opened again" } else { "until the program is started again" };
        assert!(errors.contains(said), "{device}: {errors}");
        assert_eq!(report["balanced"], true, "{report}");
        assert_eq!(report["received"], if reopens { 200 } else { 100 }, "{report}");
        assert_eq!(report["pools_whole"], true, "{report}");
        let noted = if reopens { "had gone; opened again: 1" } else { "interface has gone" };
        assert!(report["notes"].to_string().contains(noted), "{report}");
    }
}

/// Sends datagrams to the program, from the interface's other end.
fn send_datagrams(count: usize) {
    let datagram = udp().to("192.0.2.1:4321").payload([7; 32]).build();
    let sent = Peer::new("b").send(std::iter::repeat_n(datagram.as_slice(), count));
    assert_eq!(sent, count as u64, "the kernel takes every frame");
}
