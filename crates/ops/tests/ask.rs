//! Requests to programs that exist, that don't, and that misbehave.

use hotloop_ops::{AskError, Reply, Request, Socket, ask, ask_within};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

/// The client's result with a program that answers like this.
fn answered(
    request: &Request,
    mut answer: impl FnMut(&Request) -> Result<Value, String>,
) -> Result<Value, AskError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nf.sock");
    let mut socket = Socket::bind(&path).unwrap();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| ask(&path, request));
        while !asked.is_finished() {
            socket.serve(&mut |request| Reply::Now(answer(request)));
            std::thread::yield_now();
        }
        asked.join().unwrap()
    })
}

/// The client's error with a server that treats its connection like this.
fn treated(wait: Duration, treat: impl Fn(std::os::unix::net::UnixStream) + Send) -> AskError {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nf.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || treat(listener.accept().unwrap().0));
        ask_within(&path, &Request::new("status"), wait).unwrap_err()
    })
}

#[test]
fn answers_and_errors_arrive_however_long() {
    let long = Value::from("x".repeat(15 << 20));
    assert_eq!(answered(&Request::new("long"), |_| Ok(long.clone())).unwrap(), long);
    let request = Request::with("lookup", json!({"flow": ["\n", 1]}));
    assert_eq!(answered(&request, |asked| Ok(asked.arguments.clone())).unwrap(), request.arguments);
    let error = answered(&request, |_| Err("no such\nflow".into())).unwrap_err();
    assert!(matches!(error, AskError::Refused(ref text) if text == "no such\nflow"), "{error}");
    let error = answered(&request, |_| Ok("x".repeat(17 << 20).into())).unwrap_err();
    assert!(matches!(error, AskError::Refused(ref text) if text.contains("ask for less")));
}

#[test]
fn a_request_that_is_too_long_is_refused_in_words() {
    let request = Request::with("lookup", json!("x".repeat(10 << 20)));
    let error = answered(&request, |_| panic!("nobody reads it")).unwrap_err();
    assert!(matches!(error, AskError::Refused(ref text) if text.contains("65536")), "{error}");
}

#[test]
fn where_nobody_listens_the_path_is_named_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for path in [folder.path().join("nf.sock"), folder.path().join("file")] {
        let error = ask(&path, &Request::new("status")).unwrap_err();
        assert!(matches!(error, AskError::NoProgram { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains("--control PATH"), "{text}");
    }
    let error = ask(Path::new("/no\0such"), &Request::new("status")).unwrap_err();
    assert!(matches!(error, AskError::System { .. }), "{error}");
}

#[test]
fn a_stuck_program_is_given_up() {
    let wait = Duration::from_millis(50);
    let error = treated(wait, |mut stream| {
        // It takes the request and reads on until the client goes.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    assert!(matches!(error, AskError::Silent { .. }), "{error}");
    // A server that sends for ever, but never an answer's end, is given up too.
    let error = treated(wait, |mut stream| while stream.write_all(b" ").is_ok() {});
    assert!(matches!(error, AskError::Silent { .. } | AskError::NoAnswer { .. }), "{error}");
}

#[test]
fn a_program_that_accepts_nobody_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nf.sock");
    let _socket = Socket::bind(&path).unwrap();
    // Those in the queue wait for an answer, the others for a place in the queue.
    for _ in 0..70 {
        let error = ask_within(&path, &Request::new("status"), Duration::from_millis(1));
        assert!(matches!(error, Err(AskError::Silent { .. })), "{error:?}");
    }
}

#[test]
fn what_is_no_answer_is_reported() {
    let wait = Duration::from_secs(30);
    for sent in ["", "{\"ok\": 1}", "hello\n", "{\"fine\": 1}\n"] {
        let error = treated(wait, |mut stream| {
            stream.write_all(sent.as_bytes()).unwrap();
            // The request is read, so that closing is no reset.
            let mut request = [0; 64];
            assert!(stream.read(&mut request).unwrap() > 0);
        });
        assert!(matches!(error, AskError::NoAnswer { .. }), "{sent}: {error}");
    }
    let error = treated(wait, |mut stream| while stream.write_all(&[b'x'; 1 << 20]).is_ok() {});
    assert!(matches!(error, AskError::NoAnswer { .. }), "{error}");
    // Closed with the request unread.
    let error = treated(wait, drop);
    assert!(matches!(error, AskError::NoAnswer { .. }), "{error}");
}
