//! A host at the other end of a wire, in a network of its own.

use crate::network::{Network, ip};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

type Task = Box<dyn FnOnce() + Send>;

/// A thread in a network of its own that runs tasks. It ends when this is dropped.
#[derive(Debug)]
pub struct Host {
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// A host in a new network with IPv6, which gets these interfaces from the calling thread's
    /// network.
    ///
    /// # Panics
    /// If the network can't be made, or if there are no such interfaces.
    #[must_use]
    pub fn start(interfaces: &[&str]) -> Self {
        let (ready, is_ready) = channel();
        let (tasks, asked) = channel::<Task>();
        let thread = std::thread::spawn(move || {
            let network = Network::with_ipv6().expect("there may be another network");
            ready.send(network.process()).expect("somebody waits");
            asked.into_iter().for_each(|task| task());
        });
        let process = is_ready.recv().expect("it enters its network").to_string();
        for interface in interfaces {
            let moved = ip(&["link", "set", "dev", interface, "netns", &process]);
            moved.unwrap_or_else(|error| panic!("{error}"));
        }
        Self { tasks: Some(tasks), thread: Some(thread) }
    }

    /// Runs a task in the host's network, and waits until it is done.
    ///
    /// # Panics
    /// If `task` panics.
    pub fn does<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let task = move || drop(done.send(task()));
        let sent = self.tasks.as_ref().and_then(|tasks| tasks.send(Box::new(task)).ok());
        sent.and_then(|()| result.recv().ok()).expect("the thread has not panicked")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
