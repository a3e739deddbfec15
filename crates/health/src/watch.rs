//! The thread that probes: it waits for sockets, for deadlines and for the next probes at the same
//! time.

use crate::poller::Poller;
use crate::schedule::{Job, Schedule};
use crate::settings::{Health, Probe, Via};
use crate::tls::Clients;
use crate::tunnel::{ProbeChannel, Tunnels};
use crate::{HealthChange, Outcome, Probed, State};
use mio::Waker;
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Instant;

/// Maximum number of probes to begin before the thread polls the sockets of those under way.
const STARTS_MAX: usize = 64;

const NO_CHANNEL: &str = "no way to the workers, which send what goes through tunnels";

/// A message to the thread.
pub enum Message {
    /// Probe these backends, with at most this many probes under way at once.
    Set(Vec<Probed>, usize),
    /// Treat these backends as down.
    Down(HashSet<(IpAddr, Health)>),
    /// Return all states.
    States(Sender<Vec<State>>),
    /// End.
    End,
}

/// The state of the thread.
pub struct Watch {
    schedule: Schedule,
    poller: Poller,
    clients: Clients,
    /// Maximum number of probes under way at once: each has a file descriptor.
    probes_max: usize,
    /// The probes through tunnels, if there may be any.
    tunnels: Option<Tunnels>,
    results: Sender<HealthChange>,
}

impl Watch {
    /// Makes the thread's state without any probes. Changes go to `results`.
    ///
    /// # Errors
    /// If the kernel has no descriptor left.
    pub fn new(results: Sender<HealthChange>, channel: Option<ProbeChannel>) -> io::Result<Self> {
        Ok(Self {
            schedule: Schedule::default(),
            poller: Poller::new()?,
            clients: Clients::default(),
            probes_max: 0,
            tunnels: channel.map(Tunnels::new),
            results,
        })
    }

    /// Makes the thread check its messages.
    ///
    /// # Errors
    /// If the kernel has no descriptor left.
    pub fn waker(&self) -> io::Result<Waker> {
        self.poller.waker()
    }

    /// Works until a message ends the thread, or the other end of the channel is gone.
    pub fn work(&mut self, inbox: &Receiver<Message>) {
        loop {
            match inbox.try_recv() {
                Ok(Message::End) | Err(TryRecvError::Disconnected) => return,
                Ok(Message::Set(probed, probes_max)) => self.set(probed, probes_max),
                Ok(Message::Down(down)) => self.schedule.take_down(&down, Instant::now()),
                // The receiver may be gone.
                Ok(Message::States(answer)) => drop(answer.send(self.schedule.states())),
                Err(TryRecvError::Empty) => self.turn(),
            }
        }
    }

    /// Begins the due probes, and waits for results.
    fn turn(&mut self) {
        for _ in 0..STARTS_MAX {
            let Some(job) = self.schedule.take_due(Instant::now()) else { break };
            if let Err(why) = self.start(&job) {
                ended(&mut self.schedule, &self.results, job.number, Err(why));
            }
        }
        let replies = self.tunnels.as_ref().and_then(Tunnels::next_turn);
        let times = [self.schedule.next_due(), self.poller.next_end(), replies];
        let until = times.into_iter().flatten().min();
        let Self { schedule, poller, tunnels, results, .. } = self;
        poller.wait(until, |number, outcome| ended(schedule, results, number, outcome));
        if let Some(tunnels) = tunnels {
            tunnels.turn(|number, outcome| ended(schedule, results, number, outcome));
        }
    }

    fn start(&mut self, job: &Job) -> Result<(), String> {
        if let Via::Tunnel(path) = &job.probed.health.via {
            let Some(tunnels) = &mut self.tunnels else { return Err(NO_CHANNEL.to_owned()) };
            return tunnels.start(job.number, &job.probed, path);
        }
        if self.poller.count() >= self.probes_max {
            return Err(format!(
                "no file descriptor: {} probes are under way",
                self.poller.count()
            ));
        }
        self.poller.start(job.number, &job.probed, &mut self.clients)
    }

    fn set(&mut self, probed: Vec<Probed>, probes_max: usize) {
        self.probes_max = probes_max;
        let changes = self.schedule.set(probed, Instant::now());
        self.poller.retain(|number| self.schedule.has(number));
        if let Some(tunnels) = &mut self.tunnels {
            tunnels.retain(|number| self.schedule.has(number));
        }
        let used = self.schedule.probed().filter_map(|probed| match &probed.health.probe {
            Probe::Https(_, trust) => Some(trust),
            _ => None,
        });
        let used = used.collect::<HashSet<_>>();
        self.clients.renew(|trust| used.contains(trust));
        changes.into_iter().for_each(|change| report(&self.results, change));
    }
}

/// Records a probe that is over.
fn ended(schedule: &mut Schedule, results: &Sender<HealthChange>, number: u64, outcome: Outcome) {
    let change = schedule.finished(number, outcome, Instant::now());
    change.into_iter().for_each(|change| report(results, change));
}

fn report(results: &Sender<HealthChange>, change: HealthChange) {
    // The receiver may be gone: then the change doesn't matter.
    let _ = results.send(change);
}
