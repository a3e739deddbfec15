//! A minimal subset of HTTP.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a client waits for each step.
const WAIT: Duration = Duration::from_secs(3);

/// The length of the only page: several segments.
const PAGE_BYTES: usize = 20_000;

/// A server at every address of the starting thread's network, for both IP versions.
pub struct Server {
    port: u16,
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_ending = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&is_ending);
        let thread = std::thread::spawn(move || {
            for client in listener.incoming() {
                if ends.load(Relaxed) {
                    return;
                }
                // A client that goes away reports that itself.
                let _ = client.and_then(answer);
            }
        });
        Self { port, is_ending, thread: Some(thread) }
    }

    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_ending.store(true, Relaxed);
        let woken = TcpStream::connect((Ipv6Addr::LOCALHOST, self.port));
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

fn answer(mut client: TcpStream) -> io::Result<()> {
    client.set_read_timeout(Some(WAIT))?;
    let mut lines = BufReader::new(client.try_clone()?).lines();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let header = format!("HTTP/1.0 200 OK\r\nContent-Length: {PAGE_BYTES}\r\n\r\n");
    client.write_all(header.as_bytes())?;
    client.write_all(&vec![b'x'; PAGE_BYTES])
}

/// Fetches the page from a server.
pub fn fetch(server: SocketAddr) -> Result<(), String> {
    let fetch = || -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&server, WAIT)?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = fetch().map_err(|error| format!("fetching: {error}"))?;
    let page = [b'x'; PAGE_BYTES];
    let is_whole = answer.starts_with(b"HTTP/1.0 200 OK\r\n") && answer.ends_with(&page);
    if is_whole { Ok(()) } else { Err(format!("{} bytes came", answer.len())) }
}
