//! Valid and invalid paths of a socket, and other things at a path.

use hotloop_ops::{AskError, Reply, Request, Socket, SocketError, ask};
use rustix::fs::Mode;
use rustix::process::umask;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn only_the_owner_may_connect_whatever_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hotloop/nf.sock");
    let before = umask(Mode::empty());
    let socket = Socket::bind(&path).unwrap();
    umask(before);
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(socket.path(), path);
}

#[test]
fn a_running_programs_socket_is_refused_and_goes_on_working() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nf.sock");
    let mut first = Socket::bind(&path).unwrap();
    let error = Socket::bind(&path).unwrap_err();
    assert!(matches!(error, SocketError::Taken { .. }));
    let text = error.to_string();
    assert!(text.contains(path.to_str().unwrap()) && text.contains("--control PATH"), "{text}");

    let asked = std::thread::spawn({
        let path = path.clone();
        move || ask(&path, &Request::new("status"))
    });
    while !asked.is_finished() {
        first.serve(&mut |request| Reply::Now(Ok(request.command.as_str().into())));
        std::thread::yield_now();
    }
    assert_eq!(asked.join().unwrap().unwrap(), "status");
}

#[test]
fn a_running_program_with_many_waiting_clients_is_not_taken_for_dead() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nf.sock");
    let _first = Socket::bind(&path).unwrap();
    let waiting: Vec<_> = (0..64).map(|_| UnixStream::connect(&path).unwrap()).collect();
    // Each attempt waits in the queue too: soon it is full.
    for _ in 0..8 {
        let error = Socket::bind(&path).unwrap_err();
        assert!(matches!(error, SocketError::Taken { .. }), "{error}");
    }
    assert_eq!(waiting.len(), 64);
}

#[test]
fn a_socket_that_was_left_behind_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nf.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(matches!(ask(&path, &Request::new("status")), Err(AskError::NoProgram { .. })));
    let socket = Socket::bind(&path).unwrap();
    UnixStream::connect(&path).unwrap();
    drop(socket);
    assert!(!path.exists());
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "precious").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &link] {
        let error = Socket::bind(path).unwrap_err();
        assert!(matches!(error, SocketError::Occupied { .. }), "{error}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn a_path_that_cannot_be_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let long = folder.path().join("x".repeat(120));
    for (path, expected) in [
        (folder.path().join("no/such/nf.sock"), "No such file"),
        (folder.path().join("file/nf.sock"), "Not a directory"),
        (long, "at most 107 bytes"),
        ("/".into(), "names no file"),
        ("".into(), "names no file"),
        (folder.path().to_owned(), "no socket"),
    ] {
        let text = Socket::bind(&path).unwrap_err().to_string();
        assert!(text.contains(expected) && text.contains("--control PATH"), "{text}");
    }
    assert!(!folder.path().join("no").exists(), "a path with a slip in it makes no tree");
}

#[test]
fn of_many_that_start_at_once_one_gets_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nf.sock");
    for _ in 0..20 {
        // Each finds a socket that was left there, and must not mistake a new one for it.
        drop(UnixListener::bind(&path).unwrap());
        let won_count = AtomicUsize::new(0);
        let barrier = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    let socket = Socket::bind(&path);
                    won_count.fetch_add(usize::from(socket.is_ok()), Ordering::Relaxed);
                    barrier.wait();
                    if socket.is_ok() {
                        assert!(UnixStream::connect(&path).is_ok());
                    }
                });
            }
        });
        assert_eq!(won_count.into_inner(), 1);
        assert!(!path.exists());
    }
}
