//! The follower's thread: applies announcements, and reads whole tables if these are not enough.

use super::Shared;
use crate::netlink::{Dump, Events, Message, Requests, is_one_of};
use crate::tables::{Fibs, KernelTables};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The groups (rtnetlink(7), `RTNLGRP_…`): links, neighbours, addresses and routes of both IP versions,
/// next-hop objects.
pub(super) const GROUPS: [u32; 7] = [1, 3, 5, 7, 9, 11, 32];

/// Messages with these numbers announce that a next-hop object came or went (`RTM_NEWNEXTHOP`,
/// `RTM_DELNEXTHOP`). Routes that use one change with it.
const NEXT_HOP_OBJECTS: std::ops::RangeInclusive<u16> = 104..=105;

/// The most attempts to read a table that changes meanwhile, before the thread does other work.
const ATTEMPT_COUNT_MAX: usize = 3;

/// Datagrams to apply before the thread does other work.
const DATAGRAM_COUNT_MAX: usize = 256;

/// The least time between two reads of the routes; changes in between need only one read.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// At most one part in `READ_TIME_PARTS` of the thread's time goes into reading whole tables,
/// however large they are and however often they change.
const READ_TIME_PARTS: u32 = 5;

/// The time before a failed read is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The tables to read again.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Need {
    Nothing,
    Routes,
    Everything,
}

/// State of the thread.
pub(super) struct Reader {
    events: Events,
    requests: Requests,
    shared: Arc<Shared>,
    need: Need,
    /// Earliest time of the next read.
    due: Instant,
}

impl Reader {
    pub(super) fn new(events: Events, requests: Requests, shared: Arc<Shared>) -> Self {
        Self { events, requests, shared, need: Need::Nothing, due: Instant::now() }
    }

    /// Runs until something is written to `stop`.
    pub(super) fn run(mut self, stop: &OwnedFd) {
        loop {
            let left = self.due.saturating_duration_since(Instant::now());
            if self.need > Need::Nothing && left.is_zero() {
                self.read_again();
                continue;
            }
            let timeout = (self.need > Need::Nothing)
                .then(|| Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }));
            let mut files =
                [PollFd::new(&self.events, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            match poll(&mut files, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!("waiting for the kernel's announcements: {error}");
                    std::thread::sleep(RETRY_INTERVAL);
                }
            }
            if !files[1].revents().is_empty() {
                return;
            }
            if !files[0].revents().is_empty() {
                self.take_events();
            }
        }
    }

    /// Applies the announcements that have arrived.
    fn take_events(&mut self) {
        for _ in 0..DATAGRAM_COUNT_MAX {
            let mut tables = self.shared.lock();
            let before = tables.counts;
            let need = &mut self.need;
            let taken = self.events.receive(&mut |message| take(&mut tables, need, &message));
            if tables.counts != before {
                self.shared.changed.notify_all();
            }
            drop(tables);
            match taken {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    self.need = Need::Everything;
                    if is_one_of(&error, &[Errno::NOBUFS]) {
                        self.shared.overrun_count.fetch_add(1, Relaxed);
                        continue;
                    }
                    tracing::error!("reading the kernel's announcements: {error}");
                    self.due = Instant::now() + RETRY_INTERVAL;
                    return;
                }
            }
        }
    }

    fn read_again(&mut self) {
        let begun = Instant::now();
        let need = std::mem::replace(&mut self.need, Need::Nothing);
        let result =
            if need == Need::Everything { self.read_everything() } else { self.read_routes() };
        let taken = begun.elapsed();
        self.due = Instant::now() + READ_INTERVAL_MIN.max(taken * (READ_TIME_PARTS - 1));
        if let Err(error) = result {
            tracing::error!("reading the kernel's routes, tried again in a second: {error}");
            self.need = need;
            self.due = Instant::now() + RETRY_INTERVAL;
        }
    }

    /// Reads all tables. Announcements wait meanwhile and are applied afterwards: repeating a known
    /// fact changes nothing.
    pub(super) fn read_everything(&mut self) -> io::Result<()> {
        let requests = [
            RouteNetlinkMessage::GetLink(LinkMessage::default()),
            RouteNetlinkMessage::GetAddress(AddressMessage::default()),
            RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
        ];
        let (read, dump) = self.dump(&requests, |tables: &mut KernelTables, message| {
            tables.apply(0, &message);
        })?;
        self.shared.lock().set_others(read);
        self.read_routes()?;
        if dump == Dump::Interrupted {
            self.need = Need::Everything;
        }
        Ok(())
    }

    /// Reads the routes, and replaces the known ones.
    fn read_routes(&mut self) -> io::Result<()> {
        let of = |family| {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            RouteNetlinkMessage::GetRoute(message)
        };
        let requests = [of(AddressFamily::Inet), of(AddressFamily::Inet6)];
        let (fibs, dump) = self.dump(&requests, |fibs: &mut Fibs, message| fibs.read(&message))?;
        self.shared.lock().set_routes(fibs);
        self.shared.read_count.fetch_add(1, Relaxed);
        self.shared.changed.notify_all();
        if dump == Dump::Interrupted {
            self.need = self.need.max(Need::Routes);
        }
        Ok(())
    }

    /// Makes a table from the answers to all `requests`. If the table changes meanwhile, it is read
    /// a few times.
    fn dump<T: Default>(
        &mut self,
        requests: &[RouteNetlinkMessage],
        mut take: impl FnMut(&mut T, RouteNetlinkMessage),
    ) -> io::Result<(T, Dump)> {
        let mut attempt_count = 0;
        loop {
            let (mut table, mut dump) = (T::default(), Dump::Whole);
            for request in requests {
                let one =
                    self.requests.dump(request.clone(), &mut |message| take(&mut table, message));
                match one {
                    Ok(Dump::Whole) => {}
                    Ok(Dump::Interrupted) => dump = Dump::Interrupted,
                    // The kernel has no IPv6.
                    Err(error) if is_one_of(&error, &[Errno::OPNOTSUPP, Errno::AFNOSUPPORT]) => {}
                    Err(error) => return Err(error),
                }
            }
            attempt_count += 1;
            if dump == Dump::Whole || attempt_count == ATTEMPT_COUNT_MAX {
                return Ok((table, dump));
            }
        }
    }
}

fn take(tables: &mut KernelTables, need: &mut Need, message: &Message) {
    let is_unclear = match &message.payload {
        Some(payload) => tables.apply(message.flags, payload),
        None => NEXT_HOP_OBJECTS.contains(&message.kind),
    };
    if is_unclear {
        *need = (*need).max(Need::Routes);
    }
}
