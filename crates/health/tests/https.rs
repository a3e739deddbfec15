//! HTTPS: the servers that a probe trusts, and its messages about the others.

use super::authority::{Authority, date_time_ymd};
use super::server::{V4, V6, drip, loopbacks, read_request, serve};
use super::{PATIENT_MS, healthz, next_outcome, probed, run};
use hotloop_health::settings::{Probe, Trust};
use hotloop_health::{Probes, tls};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::fs;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Serves 200 over TLS.
fn serve_tls(address: &str, config: Arc<ServerConfig>) -> u16 {
    serve(address, move |stream| {
        let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
        if read_request(&mut stream).is_empty() {
            // The client's alert must still be read: closing now would reset the connection.
            let _ = stream.sock.shutdown(Shutdown::Write);
            return;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        read_request(&mut stream);
    })
}

/// A folder with an authority's certificate, and a probe that trusts it.
fn trusting(authority: &Authority) -> (TempDir, Trust) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    fs::write(&path, &authority.pem).unwrap();
    (folder, Trust::CaFile(path))
}

fn https(address: &str, port: u16, trust: &Trust) -> Result<(), String> {
    run(address, port, Probe::Https(healthz(), trust.clone()), PATIENT_MS).map(drop)
}

#[test]
fn a_certificate_for_the_address_from_the_authority_passes() {
    let authority = Authority::new("Test");
    let (_folder, trust) = trusting(&authority);
    for address in loopbacks() {
        for version in rustls::ALL_VERSIONS {
            let port = serve_tls(address, authority.server(address, &[*version], |_| ()));
            assert_eq!(https(address, port, &trust), Ok(()), "{:?}", version.version);
        }
    }
}

#[test]
fn any_other_certificate_fails_and_says_why_and_passes_where_any_is_trusted() {
    let (authority, stranger) = (Authority::new("Test"), Authority::new("Other"));
    let namesake = Authority::new("Test");
    let (_folder, trust) = trusting(&authority);
    let all = rustls::ALL_VERSIONS;
    let expired = authority.server(V4, all, |params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    let early = authority.server(V4, all, |params| params.not_before = date_time_ymd(3000, 1, 1));
    for (server, words) in [
        (stranger.server(V4, all, |_| ()), "signed by none of those that ca_file holds"),
        (namesake.server(V4, all, |_| ()), "signed by none of those that ca_file holds"),
        (authority.server("127.0.0.2", all, |_| ()), "for 127.0.0.2, not for 127.0.0.1"),
        (authority.server(V6, all, |_| ()), "for ::1, not for 127.0.0.1"),
        (authority.server("lb.example", all, |_| ()), "for lb.example, not for 127.0.0.1"),
        (expired, "expired "),
        (early, "not valid yet; is the clock right?"),
        (authority.itself(), "an authority's own; sign another with it for the server"),
    ] {
        let port = serve_tls(V4, server);
        let failed = https(V4, port, &trust).unwrap_err();
        assert!(failed.starts_with("certificate: ") && failed.contains(words), "{failed}");
        assert_eq!(https(V4, port, &Trust::Insecure), Ok(()));
    }
}

#[test]
fn a_server_without_tls_fails() {
    let port = serve(V4, |mut stream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        read_request(&mut stream);
    });
    assert_eq!(https(V4, port, &Trust::Insecure).unwrap_err(), "the server doesn't speak TLS");
    let failed = https(V4, serve(V4, drop), &Trust::Insecure).unwrap_err();
    let hung_up = ["reset", "closed"].map(|how| format!("connection {how} in the TLS handshake"));
    assert!(hung_up.contains(&failed), "{failed}");
}

#[test]
fn a_server_that_is_silent_or_dribbles_times_out() {
    let config = Authority::new("Test").server(V4, rustls::ALL_VERSIONS, |_| ());
    let silent = |stream: TcpStream| drop(read_request(&mut &stream));
    let dribbling = move |stream| {
        let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
        read_request(&mut stream);
        drip(&mut stream, b"HTTP/1.1 100 Continue\r\n\r\n");
    };
    // A record of the handshake that is never complete.
    let slow = |mut stream: TcpStream| {
        stream.write_all(&[22, 3, 3, 64, 0, 2, 0, 63, 252]).unwrap();
        drip(&mut stream, &[0]);
    };
    let start = Instant::now();
    for (port, when) in [
        (serve(V4, silent), "in the TLS handshake"),
        (serve(V4, slow), "in the TLS handshake"),
        (serve(V4, dribbling), "while waiting for an answer"),
    ] {
        let probe = Probe::Https(healthz(), Trust::Insecure);
        let failed = run(V4, port, probe, 2_000).unwrap_err();
        assert_eq!(failed, format!("timed out after 2000 ms {when}"));
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn a_file_that_holds_no_authority_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (name, text, words) in [
        ("none.pem", None, "No such file"),
        ("empty.pem", Some(""), "has no certificate; write an authority's in PEM"),
        ("key.pem", Some("-----BEGIN KEY-----\nAA"), "not PEM: "),
        ("broken.pem", Some(broken), "certificate: "),
    ] {
        let path = folder.path().join(name);
        if let Some(text) = text {
            fs::write(&path, text).unwrap();
        }
        let trust = Trust::CaFile(path.clone());
        let failed = https(V4, 1, &trust).unwrap_err();
        assert!(failed.starts_with(&format!("{}: ", path.display())), "{failed}");
        assert!(failed.contains(words), "{failed}");
        assert_eq!(tls::client(&trust).unwrap_err(), failed);
    }
}

#[test]
fn a_pipe_in_place_of_an_authority_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    mkfifoat(CWD, &path, Mode::RUSR).unwrap();
    let failed = https(V4, 1, &Trust::CaFile(path.clone())).unwrap_err();
    assert_eq!(failed, format!("{}: not a regular file", path.display()));
}

#[test]
fn a_chain_that_takes_several_turns_is_read_to_its_end() {
    let config = Authority::new("Test").server_with_chain(V4, 100);
    assert_eq!(https(V4, serve_tls(V4, config), &Trust::Insecure), Ok(()));
}

#[test]
fn authorities_are_read_again_when_that_is_asked_for() {
    let (first, second) = (Authority::new("Test"), Authority::new("Test"));
    let (_folder, trust) = trusting(&first);
    let Trust::CaFile(path) = &trust else { unreachable!("a file was asked for") };
    let port = serve_tls(V4, second.server(V4, rustls::ALL_VERSIONS, |_| ()));
    let mut probed = probed(V4, port, Probe::Https(healthz(), trust.clone()), PATIENT_MS);
    probed.health.interval_ms = 20;
    let mut probes = Probes::start(mpsc::channel().0).unwrap();
    probes.set(vec![probed.clone()]);
    // The outcome after the next one belongs to a probe that began after the caller's change.
    let passes = |probes: &Probes| next_outcome(probes).and(next_outcome(probes)).is_ok();

    assert!(!passes(&probes));
    fs::write(path, &second.pem).unwrap();
    assert!(!passes(&probes), "what was read stays");
    probes.set(vec![probed.clone()]);
    assert!(passes(&probes));
    fs::remove_file(path).unwrap();
    probes.set(vec![probed.clone()]);
    assert!(passes(&probes), "what can't be read any more stays as it was");
    probes.set(Vec::new());
    probes.set(vec![probed]);
    assert!(!passes(&probes), "what isn't used is forgotten");
}
