//! HTTP: status lines, and servers that never send one.

use super::server::{V4, drip, loopbacks, read_request, serve};
use super::{PATIENT_MS, healthz, run};
use hotloop_health::settings::{HttpProbe, Probe};
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Sends this answer to any request.
fn answering(answer: &'static [u8]) -> u16 {
    serve(V4, move |mut stream| {
        read_request(&mut stream);
        // A client that has read enough is gone before the end of it.
        let _ = stream.write_all(answer).and_then(|()| stream.shutdown(Shutdown::Write));
        read_request(&mut stream);
    })
}

fn why(answer: &'static [u8]) -> String {
    run(V4, answering(answer), Probe::Http(healthz()), PATIENT_MS).unwrap_err()
}

#[test]
fn the_expected_status_passes() {
    for address in loopbacks() {
        let (sender, requests) = mpsc::channel();
        let port = serve(address, move |mut stream| {
            sender.send(read_request(&mut stream)).unwrap();
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        });
        let probe = HttpProbe { path: "/up?deep=1".into(), expect_status: 204, user_agent: "test" };
        assert_eq!(run(address, port, Probe::Http(probe), PATIENT_MS).map(drop), Ok(()));
        let request = requests.recv().unwrap();
        let host = if address == V4 { V4.to_owned() } else { format!("[{address}]") };
        let expected = format!("GET /up?deep=1 HTTP/1.1\r\nHost: {host}:{port}\r\n");
        assert!(request.starts_with(&expected), "{request}");
        assert!(request.contains("\r\nConnection: close\r\n"), "{request}");
    }
}

#[test]
fn the_body_is_not_waited_for() {
    let port = serve(V4, |mut stream| {
        read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n").unwrap();
        read_request(&mut stream);
    });
    assert_eq!(run(V4, port, Probe::Http(healthz()), PATIENT_MS).map(drop), Ok(()));
}

#[test]
fn another_status_fails() {
    assert_eq!(why(b"HTTP/1.1 503 Service Unavailable\r\n\r\n"), "status 503, expected 200");
    assert_eq!(why(b"HTTP/1.0 301 Moved\r\nLocation: /\r\n\r\n"), "status 301, expected 200");
}

#[test]
fn what_is_no_http_fails_with_what_it_is() {
    assert_eq!(why(b"SSH-2.0-x\r\n"), "not HTTP/1: the answer begins \"SSH-2.0-x\\r\\n\"");
}

#[test]
fn a_server_that_hangs_up_fails() {
    assert_eq!(why(b""), "connection closed while waiting for an answer");
    assert_eq!(why(b"HTTP/1.1 200"), "connection closed while waiting for an answer");
    // Closed with the request unread, which resets the connection, before or after the request is
    // sent.
    let failed = run(V4, serve(V4, drop), Probe::Http(healthz()), PATIENT_MS).unwrap_err();
    let hung_up =
        ["reset", "closed"].map(|how| format!("connection {how} while waiting for an answer"));
    assert!(hung_up.contains(&failed), "{failed}");
}

#[test]
fn an_endless_answer_fails() {
    let port = serve(V4, |mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 103 Early Hints\r\n");
        while stream.write_all(b"Link: <and-so-on>\r\n").is_ok() {}
    });
    let failed = run(V4, port, Probe::Http(healthz()), PATIENT_MS).unwrap_err();
    assert_eq!(failed, "no status within 16384 bytes of the answer");
}

#[test]
fn a_server_that_is_silent_or_dribbles_times_out() {
    let silent =
        |mut stream: TcpStream| drop(read_request(&mut stream) + &read_request(&mut stream));
    let dribbling = |mut stream: TcpStream| drip(&mut stream, b"HTTP/1.1 100 Continue\r\n\r\n");
    let start = Instant::now();
    for port in [serve(V4, silent), serve(V4, dribbling)] {
        let failed = run(V4, port, Probe::Http(healthz()), 1_000).unwrap_err();
        assert_eq!(failed, "timed out after 1000 ms while waiting for an answer");
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn an_answer_in_pieces_is_put_together() {
    let port = serve(V4, |mut stream| {
        read_request(&mut stream);
        for byte in b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\n" {
            stream.write_all(&[*byte]).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        read_request(&mut stream);
    });
    assert_eq!(run(V4, port, Probe::Http(healthz()), PATIENT_MS).map(drop), Ok(()));
}
