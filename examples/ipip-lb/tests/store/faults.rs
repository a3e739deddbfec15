//! Servers with answers that etcd would never send: memory and time stay bounded, and the error is
//! reported.

use hotloop_cluster::settings::StoreAddress;
use hotloop_cluster::store::etcd::{Bounds, Etcd};
use hotloop_cluster::store::layout::read;
use hotloop_cluster::store::{Key, StoreErrorKind};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const BOUNDS: Bounds = Bounds {
    connect: Duration::from_secs(1),
    call: Duration::from_secs(1),
    answer_bytes_max: 1 << 20,
};

/// A server on a thread of its own. `answer` writes to each connection whose request has come.
fn server(answer: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + 'static) -> Etcd {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("etcd://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            // It ends when the client has read enough.
            let _ = answer(&mut stream);
            // If it were closed with some of the request unread, the connection would be reset, and
            // the answer lost.
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    Etcd::new(address.parse::<StoreAddress>().unwrap(), BOUNDS).unwrap()
}

/// Answers with a status and a body.
fn answering(status: &'static str, body: &'static str) -> Etcd {
    server(move |stream| {
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
    })
}

/// The error of a reading that fails because of the server.
fn complaint(etcd: &Etcd) -> String {
    let error = read(etcd).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error}");
    let text = error.to_string();
    assert!(text.starts_with("etcd://127.0.0.1:") && text.len() < 1000, "{text}");
    assert!(text.ends_with("; start etcd, or name its members in the store's address"), "{text}");
    assert!(!text.contains(['\n', '\x1b']), "{text}");
    text
}

#[test]
fn answers_that_are_not_etcd_s_are_named() {
    for (status, body, expected) in [
        ("200 OK", "<html>\x1b[31m", "not JSON: <html>"),
        ("200 OK", "", "not JSON"),
        ("200 OK", "[]", "an answer that is not etcd's: []"),
        ("200 OK", "{\"header\":{\"revision\":7}}", "not etcd's"),
        ("200 OK", "{\"header\":{\"revision\":\"7\"},\"kvs\":{}}", "not etcd's"),
        ("200 OK", "{\"header\":{\"revision\":\"7\"},\"kvs\":[{\"key\":\"!\"}]}", "not etcd's"),
        ("404 Not Found", "Not Found", "status 404 with what is not JSON: Not Found"),
        ("500 Oops", "{\"error\":\"broken\"}", "status 500: broken"),
        ("503 No", "{\"error\":\"no leader\",\"code\":14}", "status 503: no leader"),
        ("302 Found", "{}", "status 302"),
    ] {
        let text = complaint(&answering(status, body));
        assert!(text.contains(expected), "{text}\nwanted {expected}");
    }
    let text = complaint(&server(|stream| stream.write_all(b"\x16\x03\x01 no HTTP\r\n\r\n")));
    assert!(text.contains("127.0.0.1"), "{text}");
}

#[test]
fn an_endless_answer_ends() {
    let etcd = server(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n[")?;
        loop {
            stream.write_all(&[b'1'; 65_536])?;
        }
    });
    assert!(complaint(&etcd).contains("more than 1048576 bytes"));
    // Likewise for a watch, with lines as messages.
    let mut watch = etcd.watch(Key::One("/a"), 1, Duration::from_secs(600)).unwrap();
    assert!(watch.wait().unwrap_err().to_string().contains("the watch was lost"));
    let headers = server(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
        loop {
            stream.write_all(b"A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n")?;
        }
    });
    complaint(&headers);
}

#[test]
fn a_slow_answer_ends_in_time() {
    let start = Instant::now();
    let drop_by_drop = server(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        loop {
            stream.write_all(b" ")?;
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(complaint(&drop_by_drop).contains("no answer in time"));
    let silent = server(|_| {
        std::thread::sleep(Duration::from_secs(3600));
        Ok(())
    });
    assert!(complaint(&silent).contains("no answer in time"));
    // Each may take one second.
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn pages_that_never_end_are_not_all_read() {
    // {"generation":"0","parts":1,"bytes":1}, then always one more part of three bytes.
    let etcd = answering(
        "200 OK",
        "{\"header\":{\"revision\":\"7\"},\"more\":true,\"kvs\":[{\"key\":\"YQ==\",\
         \"mod_revision\":\"7\",\"value\":\
         \"eyJnZW5lcmF0aW9uIjoiMCIsInBhcnRzIjoxLCJieXRlcyI6MX0=\"}]}",
    );
    assert_eq!(read(&etcd).unwrap_err().kind(), StoreErrorKind::Content);
}
