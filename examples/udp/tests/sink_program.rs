//! The program itself, on capture files, and with arguments that it must refuse.

use crate::command::{assert_refused, run};
use hotloop::packet::build::{tcp, udp};
use hotloop_capture::write_frames;
use serde_json::Value;
use std::net::UdpSocket;

const SINK: &str = env!("CARGO_BIN_EXE_udp-sink");

#[test]
fn a_capture_is_counted_to_its_last_datagram() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap");
    let to_us = udp().to("192.0.2.1:4321").payload([7; 32]).build();
    let others = [tcp().to("192.0.2.1:4321").build(), udp().to("192.0.2.1:4322").build()];
    let frames = (0..1000).map(|_| to_us.clone()).chain(others);
    write_frames(&path, frames).unwrap();

    let device = format!("net_pcap0,rx_pcap={}", path.display());
    let output = run(SINK, &["--port", &device, "--report", "json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["udp"]["datagrams"], 1000);
    assert_eq!(report["udp"]["payload_bytes"], 32_000);
    assert_eq!(report["udp"]["queues"][0]["datagrams"], 1000);
    assert_eq!((&report["received"], &report["sent"]), (&Value::from(1002), &Value::from(1000)));
    assert_eq!(report["dropped"]["not_udp"], 1);
    assert_eq!(report["dropped"]["other_port"], 1);
    assert_eq!((&report["balanced"], &report["pools_whole"]), (&true.into(), &true.into()));

    let output = run(SINK, &["--port", &device]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("1000 datagrams, 32000 bytes of payload"), "{text}");
    assert!(text.contains("balanced, pools whole"), "{text}");
}

#[test]
fn bad_input_ends_in_one_line_and_exit_code_2() {
    for (arguments, expected) in [
        (&["--port", "eth0"][..], "device \"eth0\""),
        (&["--port", "net_null0", "--control", "/no/such/x.sock"], "/no/such: No such file"),
        (&["--port", "net_pcap0,rx_pcap=missing.pcap"], "missing.pcap"),
        (&["--port", "net_memif0,role=server,socket=m.sock"], "--trust-memif-peer"),
        (&["--port", "net_pcap0,tx_pcap=/dev/null", "--queues", "3"], "2 are wanted"),
        (&["--port", "net_null0", "--", "--no-such-option"], "no such option"),
        (&["--port", "net_null0", "--mbufs", "0"], "1..=1073741823"),
        (&["--port", "net_null0", "--udp-port", "0"], "\"0\" is no port"),
        (&["192.0.2.1"], "192.0.2.1:4321: no interface has this address"),
    ] {
        assert_refused(SINK, arguments, expected);
    }
}

#[test]
fn a_port_in_use_is_refused() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert_refused(SINK, &[&address], &format!("{address}: another program listens there"));
}
