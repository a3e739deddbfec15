//! Watches busy threads: their allocations and their system calls.

use crate::syscalls::Window;
use crate::{AllocCounts, AllocGuard, Armed};
use hotloop_stage::{Burst, Device, Error, Limits, Sink, Source};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Watches each thread whose source or sink passes through it, from one packet to another: in
/// steady state, when everything has been warmed up.
///
/// Allocations are counted by the [`AllocGuard`], which the test installs; system calls in a
/// [`Window`] with the thread's name, if the test is [`traced`](crate::syscalls::traced).
/// Everything that the thread does between the two packets is watched, not only its source or sink.
/// Wrap one of the two on each thread.
#[derive(Clone, Debug)]
pub struct Steady {
    warm_up_count: u64,
    watched_count: u64,
    threads: Arc<Mutex<Vec<SteadyThread>>>,
}

/// One thread's activity while it was watched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SteadyThread {
    /// The name given for its source or sink.
    pub name: String,
    /// Packets that passed meanwhile: 0 if the traffic ended before watching began.
    pub packet_count: u64,
    /// Whether watching was not cut short by the end of the traffic.
    pub is_complete: bool,
    /// The thread's allocations and frees.
    pub allocations: AllocCounts,
}

impl Steady {
    /// Watches from the first call after `warm_up_count` packets to the first after `watched_count`
    /// more.
    #[must_use]
    pub fn after(warm_up_count: u64, watched_count: u64) -> Self {
        Self { warm_up_count, watched_count, threads: Arc::default() }
    }

    /// The source or sink, watched under a name that identifies its thread.
    pub fn watch<T>(&self, name: impl Into<String>, watched: T) -> Watched<T> {
        let (name, steady) = (name.into(), self.clone());
        Watched { watched, name, steady, passed_count: 0, watch: Watch::WarmingUp }
    }

    /// The threads' activity, in the order in which watching ended. Complete once all were joined.
    #[must_use]
    pub fn threads(&self) -> Vec<SteadyThread> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A source or sink on a watched thread. [`Steady::watch`] makes it.
pub struct Watched<T> {
    watched: T,
    name: String,
    steady: Steady,
    passed_count: u64,
    watch: Watch,
}

enum Watch {
    WarmingUp,
    On { window: Window, armed: Armed, begin_count: u64 },
    Over,
}

impl<T> Watched<T> {
    /// Runs before each call: begins or ends watching when due.
    fn turn(&mut self) {
        match self.watch {
            Watch::WarmingUp if self.passed_count >= self.steady.warm_up_count => {
                let window = Window::begin(&self.name);
                let begin_count = self.passed_count;
                self.watch = Watch::On { window, armed: AllocGuard::arm(), begin_count };
            }
            Watch::On { begin_count, .. }
                if self.passed_count - begin_count >= self.steady.watched_count =>
            {
                self.end(true);
            }
            _ => {}
        }
    }

    fn end(&mut self, is_complete: bool) {
        let (mut allocations, mut packet_count) = (AllocCounts::default(), 0);
        match std::mem::replace(&mut self.watch, Watch::Over) {
            Watch::On { window, armed, begin_count } => {
                allocations = armed.counts();
                window.end();
                packet_count = self.passed_count - begin_count;
            }
            Watch::WarmingUp => {}
            Watch::Over => return,
        }
        let name = std::mem::take(&mut self.name);
        let thread = SteadyThread { name, packet_count, is_complete, allocations };
        self.steady.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl<S: Source> Source for Watched<S> {
    type Item = S::Item;

    fn poll(&mut self, burst: &mut Burst<S::Item>) -> usize {
        self.turn();
        let count = self.watched.poll(burst);
        self.passed_count += count as u64;
        count
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.watched.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.watched.devices()
    }

    fn lossless(&self) -> bool {
        self.watched.lossless()
    }

    fn creates(&self) -> bool {
        self.watched.creates()
    }

    fn waiting_count(&mut self) -> Option<usize> {
        self.watched.waiting_count()
    }

    fn stop(&mut self) -> bool {
        self.watched.stop()
    }

    fn finished(&self) -> bool {
        self.watched.finished()
    }
}

impl<S: Sink> Sink for Watched<S> {
    type Item = S::Item;

    fn send(&mut self, burst: &mut Burst<S::Item>) -> usize {
        self.turn();
        let count = self.watched.send(burst);
        self.passed_count += count as u64;
        count
    }

    fn refused_count(&self) -> u64 {
        self.watched.refused_count()
    }

    fn maintain(&mut self) {
        self.watched.maintain();
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.watched.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.watched.devices()
    }
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("passed_count", &self.passed_count).finish_non_exhaustive()
    }
}
