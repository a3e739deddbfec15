//! The program itself, into a capture file, and with arguments that it must refuse.

use crate::command::{assert_refused, run};
use hotloop::packet::build::udp;
use hotloop::packet::ethernet::MacAddress;
use hotloop_capture::read_frames;
use serde_json::{Value, json};
use udp::stamp::Stamp;

const SOURCE: &str = env!("CARGO_BIN_EXE_udp-source");

#[test]
fn what_is_sent_is_what_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let device = format!("net_pcap0,tx_pcap={}", path.display());
    let line = format!(
        "--port {device} --rate 20000 --duration 0.5 --flows 3 --from 10.0.0.1 --source-port 1000 \
         192.0.2.1 --from-mac 02:00:00:00:00:01 --report json"
    );
    let output = run(SOURCE, &line.split_whitespace().collect::<Vec<_>>());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sent = report["sent"].as_u64().unwrap();
    assert!(sent > 0, "{report}");
    assert_eq!((&report["created"], &report["received"]), (&sent.into(), &0.into()));
    assert_eq!((&report["dropped"], &report["devices"]["sent"]), (&json!({}), &sent.into()));
    assert_eq!(report["udp"]["payload_bytes"], sent * 32);
    assert_eq!((&report["balanced"], &report["pools_whole"]), (&true.into(), &true.into()));

    let frames = read_frames(&path).unwrap();
    assert_eq!(frames.len() as u64, sent);
    let mut earlier_ns = Stamp::read(&frames[0][42..]).unwrap().sent_ns;
    let mac = |last| MacAddress::new([2, 0, 0, 0, 0, last]);
    for (index, frame) in frames.iter().enumerate() {
        let from = format!("10.0.0.1:{}", 1000 + index % 3);
        let stamp = Stamp::read(&frame[42..]).unwrap();
        assert_eq!((stamp.flow as usize, stamp.number as usize), (index % 3, index / 3));
        assert!((earlier_ns..earlier_ns + 10_000_000_000).contains(&stamp.sent_ns));
        earlier_ns = stamp.sent_ns;
        let payload: Vec<u8> = stamp.bytes().into_iter().chain(24..32).collect();
        let expected = udp().macs(mac(1), mac(2)).from(from).to("192.0.2.1:4321").payload(payload);
        assert_eq!(*frame, expected.build(), "frame {index}");
    }
}

#[test]
fn bad_input_ends_in_one_line_and_exit_code_2() {
    for (arguments, expected) in [
        (&["--port", "eth0"][..], "device \"eth0\""),
        (&["--port", "net_null0", "--control", "/no/such/x.sock"], "/no/such: No such file"),
        (&["--port", "net_null0", "--queues", "2", "--flows", "1"], "at least 2"),
        (&["--port", "net_null0", "[2001:db8::1]:9000", "10.0.0.1"], "all in IPv6"),
        (&[], "say where to"),
        (&["127.0.0.1", "--from", "192.0.2.1"], "ip address"),
        (&["--port", "net_pcap0,tx_pcap=missing/out.pcap"], "missing/out.pcap"),
    ] {
        assert_refused(SOURCE, arguments, expected);
    }
}
