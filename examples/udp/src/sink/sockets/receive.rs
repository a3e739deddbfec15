//! Reception of datagrams from one thread's sockets, in batches.

use super::Sockets;
use crate::interfaces::and_sockets;
use crate::sink::delivery::Arrived;
use crate::stamp;
use hotloop::prelude::*;
use hotloop::stage::{Carries, Device};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Maximum number of datagrams that a call receives.
pub const BATCH: usize = 1_024;

/// Minimum number that a call asks for. Each costs time, even if it does not come.
const BATCH_MIN: usize = 32;

/// Number of bytes read from a datagram; longer ones are cut.
const BUFFER_BYTES: usize = 2_048;

/// Time after which a thread that waits for several sockets checks whether it should end. A single
/// socket has a timeout of its own.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A datagram that was taken from a socket.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    bytes: u32,
    /// The bytes that may be a stamp.
    beginning: [u8; stamp::BYTES],
}

impl Taken {
    fn of(payload: &[u8]) -> Self {
        let (mut beginning, count) = ([0; stamp::BYTES], payload.len().min(stamp::BYTES));
        beginning[..count].copy_from_slice(&payload[..count]);
        Self { bytes: payload.len() as u32, beginning }
    }
}

impl Arrived for Taken {
    #[inline]
    fn payload_bytes(&self) -> u64 {
        self.bytes.into()
    }

    #[inline]
    fn payload(&self) -> &[u8] {
        &self.beginning[..stamp::BYTES.min(self.bytes as usize)]
    }
}

impl Carries for Taken {
    fn bytes(&self) -> &[u8] {
        self.payload()
    }
}

/// Receives from the sockets of one thread, in turn.
///
/// A source that makes system calls, and may sleep: the kernel's sockets are the baseline for poll
/// mode.
#[derive(Debug)]
pub struct Receiver {
    sockets: Arc<Sockets>,
    thread: usize,
    waits: bool,
    /// The next socket.
    turn: usize,
    /// Number of datagrams to ask for in the next call: twice the number that came the last time.
    batch: usize,
    headers: MultiHeaders<()>,
    buffers: Vec<[u8; BUFFER_BYTES]>,
    /// Received datagrams that were not passed on yet, last first.
    taken: Vec<Taken>,
    has_failed: bool,
}

impl Receiver {
    pub(super) fn new(sockets: Arc<Sockets>, thread: usize, waits: bool) -> Self {
        assert!(thread < sockets.threads.len(), "no sockets for thread {thread}");
        Self {
            sockets,
            thread,
            waits,
            turn: 0,
            batch: BATCH_MIN,
            headers: MultiHeaders::preallocate(BATCH, None),
            buffers: vec![[0; BUFFER_BYTES]; BATCH],
            taken: Vec::with_capacity(BATCH),
            has_failed: false,
        }
    }

    fn own(&self) -> &[Arc<UdpSocket>] {
        &self.sockets.threads[self.thread].sockets
    }

    /// Takes the available datagrams from the first socket that has any.
    fn receive(&mut self) -> Result<(), Errno> {
        let count = self.own().len();
        let is_single = count == 1;
        if self.waits && !is_single {
            let mut all: Vec<_> =
                self.own().iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
            // The wait ends on a signal, too.
            let _ = poll(&mut all, Some(&WAIT));
        }
        for _ in 0..count {
            let socket = Arc::clone(&self.own()[self.turn]);
            self.turn = (self.turn + 1) % count;
            self.receive_from(&socket, self.waits && is_single)?;
            if !self.taken.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn receive_from(&mut self, socket: &UdpSocket, waits: bool) -> Result<(), Errno> {
        let flags = if waits { MsgFlags::MSG_WAITFORONE } else { MsgFlags::MSG_DONTWAIT };
        let buffers = self.buffers[..self.batch].iter_mut();
        let mut slices: Vec<_> = buffers.map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let came = recvmmsg(socket.as_raw_fd(), &mut self.headers, slices.iter_mut(), flags, None);
        match came {
            Ok(messages) => {
                let payload = |message: &nix::sys::socket::RecvMsg<'_, '_, ()>| {
                    Taken::of(message.iovs().next().unwrap_or_default())
                };
                self.taken.extend(messages.map(|message| payload(&message)));
                self.taken.reverse();
                self.batch = (2 * self.taken.len()).clamp(BATCH_MIN, BATCH);
                Ok(())
            }
            // Nothing came in time, or a signal interrupted the call.
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Source for Receiver {
    type Item = Taken;

    fn poll(&mut self, burst: &mut Burst<Taken>) -> usize {
        if self.taken.is_empty()
            && !self.has_failed
            && let Err(error) = self.receive()
        {
            tracing::error!("thread {} receives no more: {error}", self.thread);
            self.has_failed = true;
        }
        let count = self.taken.len().min(burst.room());
        let rest = self.taken.len() - count;
        burst.extend(self.taken.drain(rest..).rev());
        self.sockets.threads[self.thread].counts.received.add(count as u64);
        count
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        and_sockets(&self.sockets.interfaces, Arc::clone(&self.sockets) as Arc<dyn Device>)
    }

    fn finished(&self) -> bool {
        self.has_failed
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.sockets.threads[self.thread].counts.left.add(self.taken.len() as u64);
    }
}
