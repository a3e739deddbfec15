//! The probes under way, with their sockets and deadlines.

use crate::probe::{Progress, RunningProbe};
use crate::tls::Clients;
use crate::{Outcome, Probed};
use mio::{Events, Interest, Poll, Token, Waker};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, ErrorKind};
use std::time::Instant;

/// Maximum number of ready sockets to handle before the thread checks for other work.
const EVENTS_MAX: usize = 128;

/// The token of the thread's waker; targets are numbered from 0.
const WAKER: Token = Token(usize::MAX);

/// The events to wait for. A probe with nothing to write finds that out at once.
const READY: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// The probes under way, each by the number of its target.
#[derive(Debug)]
pub struct Poller {
    poll: Poll,
    events: Events,
    under_way: HashMap<u64, RunningProbe>,
    /// The deadlines, the first on top. Probes that ended earlier are still included.
    deadlines: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Number of sockets that were ready since there was last room for more.
    ready_count: usize,
}

impl Poller {
    /// # Errors
    /// If the kernel has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_capacity(EVENTS_MAX),
            under_way: HashMap::new(),
            deadlines: BinaryHeap::new(),
            ready_count: 0,
        })
    }

    /// Ends a [`wait`](Self::wait) from another thread.
    ///
    /// # Errors
    /// If the kernel has no descriptor left.
    pub fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), WAKER)
    }

    /// Number of probes under way.
    pub fn count(&self) -> usize {
        self.under_way.len()
    }

    /// Begins the probe of target `number`.
    ///
    /// # Errors
    /// The reason, if it failed at once.
    pub fn start(
        &mut self,
        number: u64,
        probed: &Probed,
        clients: &mut Clients,
    ) -> Result<(), String> {
        let mut probe = RunningProbe::start(probed, clients)?;
        let registered = self.poll.registry().register(probe.source(), token(number), READY);
        registered.map_err(|error| format!("{error} when waiting for a socket"))?;
        self.deadlines.push(Reverse((probe.end(), number)));
        self.under_way.insert(number, probe);
        Ok(())
    }

    /// Ends the probes of all other targets, without reporting them.
    pub fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.under_way.retain(|&number, _| is_kept(number));
        self.deadlines.retain(|&Reverse((_, number))| is_kept(number));
    }

    /// The first deadline, if a probe is under way.
    pub fn next_end(&mut self) -> Option<Instant> {
        while let Some(&Reverse((end, number))) = self.deadlines.peek() {
            if self.under_way.get(&number).is_some_and(|probe| probe.end() == end) {
                return Some(end);
            }
            self.deadlines.pop();
        }
        None
    }

    /// Waits until a socket is ready, until `until`, or until another thread wakes this one;
    /// reports each ended probe to `ended`.
    pub fn wait(&mut self, until: Option<Instant>, mut ended: impl FnMut(u64, Outcome)) {
        let now = Instant::now();
        let timeout = until.map(|until| until.saturating_duration_since(now));
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return,
            polled => polled.expect("epoll_wait(2) takes a descriptor and a buffer that are valid"),
        }
        let mut ready_count = 0;
        for event in &self.events {
            ready_count += 1;
            let number = event.token().0 as u64;
            let Some(probe) = self.under_way.get_mut(&number) else { continue };
            match probe.advance() {
                Progress::Waits => {}
                Progress::HasMore => {
                    // A socket that is still ready is reported again, after the others.
                    let registry = self.poll.registry();
                    let again = registry.reregister(probe.source(), event.token(), READY);
                    again.expect("epoll_ctl(2) takes a descriptor that is registered");
                }
                Progress::Over(outcome) => {
                    self.under_way.remove(&number);
                    ended(number, outcome);
                }
            }
        }
        // An answer that has arrived counts, however late this thread handles it: only probes that
        // had their turn, and were not ready by then, time out.
        self.ready_count += ready_count;
        if ready_count < EVENTS_MAX || self.ready_count > self.under_way.len() {
            self.ready_count = 0;
            let is_over = if ready_count == 0 { until.unwrap_or(now).max(now) } else { now };
            self.expire(is_over, ended);
        }
    }

    /// Ends the probes that have timed out at `now`.
    fn expire(&mut self, now: Instant, mut ended: impl FnMut(u64, Outcome)) {
        while self.next_end().is_some_and(|end| end <= now)
            && let Some(Reverse((_, number))) = self.deadlines.pop()
            && let Some(probe) = self.under_way.remove(&number)
        {
            ended(number, probe.expire());
        }
    }
}

/// Numbers count up from 0, so they fit.
fn token(number: u64) -> Token {
    Token(number as usize)
}
