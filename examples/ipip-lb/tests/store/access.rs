//! Access to a store by TLS and as a user, and a line with a remedy for each obstacle.

use super::node::{run, write_node};
use super::stand_in::{REFUSALS, StandIn};
use crate::sync::authority::Authority;
use hotloop_cluster::settings::{StoreAccess, StoreTls};
use hotloop_cluster::store::StoreErrorKind;
use hotloop_cluster::store::etcd::{Bounds, Etcd};
use hotloop_cluster::store::layout::read;
use std::fs;

/// The message of a client that gets no access.
fn complaint(server: &StandIn, change: impl FnOnce(&mut StoreTls)) -> String {
    let etcd = match server.client(change) {
        Ok(etcd) => etcd,
        Err(why) => return why,
    };
    let error = read(&etcd).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Access, "{error}");
    error.to_string()
}

#[test]
fn an_expired_token_is_replaced_and_the_call_repeated() {
    let authority = Authority::new("etcd's");
    let server = StandIn::start(&authority, "127.0.0.1", &authority);
    let etcd = server.client(|_| {}).unwrap();
    for _ in 0..3 {
        assert_eq!(read(&etcd).unwrap().stored, None);
    }
    assert_eq!(server.users.lock().unwrap().tokens, 1);
    for (again, why) in REFUSALS.into_iter().enumerate() {
        server.users.lock().unwrap().expired = Some(why);
        assert_eq!(read(&etcd).unwrap().stored, None);
        assert_eq!(server.users.lock().unwrap().tokens, again + 2);
    }
    // The password may have changed as well.
    fs::write(server.folder.path().join("password"), "wrong").unwrap();
    server.users.lock().unwrap().expired = Some(REFUSALS[0]);
    let error = read(&etcd).unwrap_err().to_string();
    assert!(error.contains("authentication failed"), "{error}");
    fs::write(server.folder.path().join("password"), "right\r\n").unwrap();
    assert_eq!(read(&etcd).unwrap().stored, None);
}

#[test]
fn each_obstacle_is_one_line_with_a_remedy() {
    let (authority, other) = (Authority::new("etcd's"), Authority::new("another"));
    let server = StandIn::start(&authority, "127.0.0.1", &authority);
    let folder = server.folder.path().to_owned();
    other.signed(&folder, "foreign", "node", |_| {});
    fs::write(folder.join("empty"), "\n").unwrap();
    let file = |name: &str| folder.join(name);
    let with = |change: &dyn Fn(&mut StoreTls)| complaint(&server, change);
    let own = |name: &str, key: &str| Some((file(name), file(key)));
    let password = |tls: &mut StoreTls, name: &str| {
        tls.user.as_mut().unwrap().password_file = file(name);
    };
    for (text, expected) in [
        (with(&|tls| tls.authority = file("no.pem")), &["no.pem: No such file"][..]),
        (with(&|tls| tls.authority = file("node.key")), &["node.key: has no certificate; write"]),
        (
            with(&|tls| tls.authority = file("foreign.ca")),
            &[
                "signed by none of those that store_authority holds",
                "; write the authority of etcd's",
            ],
        ),
        (
            with(&|tls| tls.certificate = own("node.pem", "no.key")),
            &["no.key: No such", "; name a"],
        ),
        (
            with(&|tls| tls.certificate = own("node.pem", "foreign.key")),
            &["node.pem: not for the key in ", "write a certificate and its own key"],
        ),
        (
            with(&|tls| tls.certificate = own("foreign.pem", "foreign.key")),
            &["write a store_certificate for clients that "],
        ),
        (with(&|tls| tls.certificate = None), &["write store_certificate and store_key"]),
        (with(&|tls| password(tls, "none")), &["none: No such file", "; name a readable file"]),
        (with(&|tls| password(tls, "empty")), &["empty: has no password on its first line"]),
        (
            with(&|tls| password(tls, "node.pem")),
            &["authentication failed", "; write the name and the password of a user"],
        ),
        (
            with(&|tls| tls.user = None),
            &["user name is empty; write store_user and store_password_file"],
        ),
    ] {
        assert!(expected.iter().all(|part| text.contains(part)), "{text}\nwanted {expected:?}");
        assert!(text.starts_with("etcd://127.0.0.1:") && !text.contains('\n'), "{text}");
    }
    assert_eq!(server.users.lock().unwrap().readings, 0);
    let closed = "503 Unavailable\n{\"error\":\"connection closed\",\"code\":14}";
    let etcd = server.client(|_| {}).unwrap();
    assert_eq!(read(&etcd).unwrap().stored, None);
    server.users.lock().unwrap().expired = Some(closed);
    let text = read(&etcd).unwrap_err().to_string();
    assert!(text.contains("; if it runs, give it a certificate for clients as well"), "{text}");
    let misnamed = StandIn::start(&authority, "etcd.example", &authority);
    let text = complaint(&misnamed, |_| {});
    assert!(text.contains("for etcd.example, not for 127.0.0.1"), "{text}");
    assert!(text.contains("; name the members in the store's address as"), "{text}");
    assert_eq!(misnamed.users.lock().unwrap().readings, 0);
}

#[test]
fn clear_and_tls_do_not_meet() {
    let authority = Authority::new("etcd's");
    let server = StandIn::start(&authority, "127.0.0.1", &authority);
    let mut access = server.access();
    access.tls = None;
    let error = read(&Etcd::new(access, Bounds::default()).unwrap()).unwrap_err().to_string();
    assert!(error.contains("write store_authority"), "{error}");
    // A server in clear.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut access = server.access();
    access.address = format!("etcd://{}", listener.local_addr().unwrap()).parse().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
            std::io::Write::write_all(&mut stream.unwrap(), answer).unwrap();
        }
    });
    let error = read(&Etcd::new(access, Bounds::default()).unwrap()).unwrap_err().to_string();
    assert!(error.contains("doesn't speak TLS") && error.contains("store_authority"), "{error}");
}

#[test]
fn files_that_were_replaced_are_read_once_the_old_ones_are_refused() {
    let (authority, next) = (Authority::new("etcd's"), Authority::new("the next"));
    let server = StandIn::start(&authority, "127.0.0.1", &authority);
    let etcd = server.client(|_| {}).unwrap();
    assert_eq!(read(&etcd).unwrap().stored, None);
    server.trust(&next);
    let error = read(&etcd).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Access, "{error}");
    // A new certificate beside the old key is refused, with its path.
    let key = server.folder.path().join("node.key");
    let old = fs::read(&key).unwrap();
    next.signed(server.folder.path(), "node", "node", |_| {});
    fs::write(server.folder.path().join("node.ca"), &authority.pem).unwrap();
    let new = fs::read(&key).unwrap();
    fs::write(&key, old).unwrap();
    let error = read(&etcd).unwrap_err().to_string();
    assert!(error.contains("not for the key in"), "{error}");
    fs::write(&key, new).unwrap();
    assert_eq!(read(&etcd).unwrap().stored, None);
}

#[test]
fn a_node_whose_files_are_wrong_does_not_start_and_names_them() {
    let authority = Authority::new("etcd's");
    let server = StandIn::start(&authority, "127.0.0.1", &authority);
    let folder = server.folder.path();
    authority.signed(folder, "other", "node", |_| {});
    let mut access = server.access();
    let start = |access: &StoreAccess| {
        write_node(folder, access, "a");
        let output = run(folder).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && text.lines().count() == 1, "{text}");
        text
    };
    access.tls.as_mut().unwrap().certificate =
        Some((folder.join("node.pem"), folder.join("other.key")));
    let text = start(&access);
    assert!(text.contains("node.pem: not for the key in ") && text.contains("; write"), "{text}");
    access.tls.as_mut().unwrap().certificate =
        Some((folder.join("no.pem"), folder.join("other.key")));
    let text = start(&access);
    assert!(text.contains("node.toml:6: cluster.store_certificate: "), "{text}");
    assert!(text.contains("no.pem: No such file"), "{text}");
}
