//! The other end of the wire: a host in a network of its own.

use super::super::{namespace, run};
use super::PEER;
use super::load::Load;
use hotloop::packet::ethernet::MacAddress;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

type Task = Box<dyn FnOnce() + Send>;

/// A thread in a network of its own, which does what it is asked to.
pub struct Peer {
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    /// A peer with this interface of the calling thread's network.
    pub fn start(interface: &'static str) -> Self {
        let (ready, is_ready) = channel();
        let (tasks, asked) = channel::<Task>();
        let thread = std::thread::spawn(move || {
            let network = namespace().unwrap();
            ready.send(network.process()).unwrap();
            asked.into_iter().for_each(|task| task());
        });
        run(&format!("link set {interface} netns {}", is_ready.recv().unwrap()));
        let peer = Self { tasks: Some(tasks), thread: Some(thread) };
        peer.does(move || {
            // It says nothing unasked, and computes its checksums itself.
            let solicitations = format!("/proc/sys/net/ipv6/conf/{interface}/router_solicitations");
            std::fs::write(solicitations, "0").unwrap();
            let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
            let mut ethtool = Command::new("env");
            ethtool.arg(format!("PATH={path}")).args(["ethtool", "-K", interface, "tx", "off"]);
            let output = ethtool.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            run(&format!("link set dev {interface} up"));
            for (address, bits) in PEER.iter().zip([24, 64]) {
                run(&format!("address add {address}/{bits} dev {interface}"));
            }
        });
        peer
    }

    /// Does something in its network.
    pub fn does<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let task = move || drop(done.send(task()));
        self.tasks.as_ref().unwrap().send(Box::new(task)).unwrap();
        result.recv().expect("the peer's thread has not panicked")
    }

    /// A load that goes to this station, by a neighbour that is never asked for.
    pub fn load_to(&self, station: MacAddress) -> Load {
        self.does(move || {
            run(&format!("neigh add 192.0.2.9 lladdr {station} nud permanent dev b0"));
            run("route add 203.0.113.0/24 via 192.0.2.9");
            Load::begin()
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
