//! The operator's and the backends' actions on a working balancer.

use hotloop_ops::{AskError, Request, ask};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};
use serde_json::json;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Between two requests.
const PAUSE: Duration = Duration::from_millis(20);

/// How long the probed backends are up, and then down.
const FLAP: Duration = Duration::from_millis(700);

/// The configuration, without the port of probes and the balancer's own.
const CONFIG: &str = include_str!("lb.toml");

/// The balancer's configuration, and the state that its probes find.
pub struct Setting {
    path: PathBuf,
    text: String,
    probed: SocketAddrV4,
    /// Keeps the port of probes from others while nothing listens there.
    _keeper: OwnedFd,
}

impl Setting {
    /// Writes the configuration to a file. `port` is the content of its `[[port]]`.
    pub fn new(path: PathBuf, port: &str) -> io::Result<Arc<Self>> {
        let keeper = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        sockopt::set_socket_reuseaddr(&keeper, true)?;
        bind(&keeper, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let probed = SocketAddrV4::try_from(getsockname(&keeper)?)?;
        let text = CONFIG.replace("PORT", port).replace("PROBED", &probed.port().to_string());
        let setting = Self { path, text, probed, _keeper: keeper };
        setting.write(0)?;
        Ok(Arc::new(setting))
    }

    /// Odd versions have one backend less, and other weights.
    fn write(&self, version: u64) -> io::Result<()> {
        let less = || self.text.replace("{ address = \"10.0.0.4\" }, ", "");
        match version % 2 {
            0 => std::fs::write(&self.path, &self.text),
            _ => std::fs::write(&self.path, less().replace("weight = 3", "weight = 5")),
        }
    }
}

/// The threads that make trouble.
pub struct Trouble {
    stop: Arc<AtomicBool>,
    operator: JoinHandle<Result<Counts, AskError>>,
    backend: JoinHandle<io::Result<u64>>,
}

#[derive(Default)]
struct Counts {
    reloads: u64,
    requests: u64,
    refused: u64,
}

impl Trouble {
    /// Starts them, on the balancer with this control socket.
    pub fn start(setting: &Arc<Setting>, socket: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (of_operator, of_backend) = (Arc::clone(&stop), Arc::clone(&stop));
        let (setting, probed) = (Arc::clone(setting), setting.probed);
        Self {
            stop,
            operator: thread::spawn(move || operate(&setting, &socket, &of_operator)),
            backend: thread::spawn(move || flap(probed, &of_backend)),
        }
    }

    /// Stops them. The operator may still wait for an answer.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether nobody waits for an answer any more.
    pub fn has_stopped(&self) -> bool {
        self.operator.is_finished()
    }

    /// Returns a summary of their actions.
    ///
    /// # Errors
    /// A query got no answer, or a thread panicked.
    pub fn finish(self) -> Result<String, Box<dyn std::error::Error>> {
        let counts = self.operator.join().map_err(|_| "the operator's thread panicked")??;
        let flaps = self.backend.join().map_err(|_| "the backend's thread panicked")??;
        let Counts { reloads, requests, refused } = counts;
        Ok(format!("{reloads} reloads, {requests} requests ({refused} refused), {flaps} flaps"))
    }
}

/// Sends every query, round and round, until it is stopped or gets no answer.
fn operate(setting: &Setting, socket: &Path, stop: &AtomicBool) -> Result<Counts, AskError> {
    let mut counts = Counts::default();
    let backend = json!({"service": "turns", "backend": "10.0.0.3"});
    let weight = json!({"service": "web", "backend": "10.0.0.1", "weight": 7});
    let removed = json!({"service": "turns", "backend": "10.0.0.3", "flush": true});
    let filter = json!({"filter": "client=198.51.100.0/24,service=web", "limit": 1000});
    let flow = json!({"protocol": "tcp", "client": "198.18.0.1:1024", "vip": "203.0.113.10:80"});
    let requests = [
        Request::new("status"),
        Request::new("counters"),
        Request::with("connections", filter),
        Request::new("overview"),
        Request::with("drain", backend),
        Request::with("weight", weight),
        Request::with("lookup", flow),
        Request::new("backends"),
        Request::new("services"),
        Request::with("remove", removed),
    ];
    for round in 1.. {
        for request in &requests {
            if stop.load(Relaxed) {
                return Ok(counts);
            }
            counts.requests += 1;
            match ask(socket, request) {
                Ok(_) => {}
                Err(AskError::Refused(_)) => counts.refused += 1,
                Err(error) => return Err(error),
            }
            thread::sleep(PAUSE);
        }
        let is_written = setting.write(round).is_ok();
        counts.reloads += u64::from(is_written && ask(socket, &Request::new("reload")).is_ok());
    }
    Ok(counts)
}

/// Accepts the connections of probes, then refuses them, and so on.
fn flap(probed: SocketAddrV4, stop: &AtomicBool) -> io::Result<u64> {
    let mut count = 0;
    while !stop.load(Relaxed) {
        let listener = TcpListener::bind(probed)?;
        thread::sleep(FLAP);
        drop(listener);
        thread::sleep(FLAP);
        count += 1;
    }
    Ok(count)
}
