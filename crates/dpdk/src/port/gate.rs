//! The gate between a port and the queues that poll it.
//!
//! A port may have to be closed while its queues are held, because its interface was deleted and
//! another of the same name exists. The gate is then shut. Each queue checks the gate before it
//! polls, and leaves if the gate is shut; once no queue is inside, the port can be closed and
//! reopened, and the gate with it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The gate's word: the number of queues inside, from bit 0; the port's number, from bit 16; and
/// how often the gate was opened or shut, from bit 32, which is odd while it is open.
const QUEUE: u64 = 1;
const QUEUES_MASK: u64 = 0xffff;
const PORT_ID_SHIFT: u32 = 16;
const TURN: u64 = 1 << 32;

/// A value that never occurs in the gate: no port has the number 65,535.
const NOWHERE: u64 = !QUEUES_MASK;

/// A single word holds whether the gate is open, to which port, and how many queues are inside. It
/// has cache lines of its own, since queues read it before each poll. It starts shut.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Gate(AtomicU64);

impl Gate {
    /// Lets queues in to a port. The gate must be shut and empty.
    pub(super) fn open(&self, port_id: u16) {
        let word = self.0.load(Relaxed);
        debug_assert!(!is_open(word) && word & QUEUES_MASK == 0);
        let turn = (word & !(TURN - 1)).wrapping_add(TURN);
        self.0.store(turn | u64::from(port_id) << PORT_ID_SHIFT, Release);
    }

    /// Lets no more queues in. Returns whether none is inside, so that the port can be closed.
    pub(super) fn shut(&self) -> bool {
        if is_open(self.0.load(Relaxed)) {
            self.0.fetch_add(TURN, AcqRel);
        }
        self.0.load(Acquire) & QUEUES_MASK == 0
    }
}

fn is_open(word: u64) -> bool {
    word & TURN != 0
}

/// A queue's lease of its running port: its side of the gate.
///
/// Invariant: from the moment the queue is inside until it leaves, the gate counts it, and so the
/// port with the number [`port_id`](Self::port_id) exists and runs: a port is closed only after
/// [`Gate::shut`] has found the gate empty, or when none of its queues is held.
#[derive(Debug)]
pub(super) struct PortLease {
    /// The gate's word at entry, without the count; [`NOWHERE`] outside.
    word: u64,
    /// Whether the queue was started, and so may enter.
    valid: bool,
}

impl PortLease {
    pub(super) const fn new() -> Self {
        Self { word: NOWHERE, valid: false }
    }

    /// Allows the queue to enter from now on.
    pub(super) fn validate(&mut self) {
        self.valid = true;
    }

    /// The number of the port inside; an impossible number outside.
    #[inline(always)]
    pub(super) fn port_id(&self) -> u16 {
        (self.word >> PORT_ID_SHIFT) as u16
    }

    /// Whether the queue is inside. Enters if the gate is open, leaves if it is shut.
    #[inline(always)]
    pub(super) fn is_inside(&mut self, gate: &Gate) -> bool {
        // Relaxed: a queue that is inside is counted, whatever the gate's state.
        gate.0.load(Relaxed) & !QUEUES_MASK == self.word || self.renew(gate)
    }

    #[cold]
    fn renew(&mut self, gate: &Gate) -> bool {
        self.leave(gate);
        // Acquire: the port was opened before the gate was.
        let entered = gate.0.fetch_update(Acquire, Relaxed, |word| {
            (self.valid && is_open(word)).then_some(word + QUEUE)
        });
        let Ok(word) = entered else { return false };
        self.word = word & !QUEUES_MASK;
        true
    }

    /// Leaves if inside.
    pub(super) fn leave(&mut self, gate: &Gate) {
        if self.word != NOWHERE {
            self.word = NOWHERE;
            // Release: the last poll happened before.
            gate.0.fetch_sub(QUEUE, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn a_queue_is_inside_while_the_gate_is_open_and_knows_the_port() {
        let gate = Gate::default();
        let mut lease = PortLease::new();
        assert!(gate.shut(), "it begins shut, and empty");
        assert!(!lease.is_inside(&gate));
        gate.open(7);
        assert!(!lease.is_inside(&gate), "its queue was not started");
        lease.validate();
        assert!(lease.is_inside(&gate) && lease.is_inside(&gate));
        assert_eq!(lease.port_id(), 7);
        assert!(!gate.shut() && !gate.shut(), "one is inside, and is counted once");
        assert!(!lease.is_inside(&gate));
        assert!(gate.shut(), "it has left");
        gate.open(3);
        assert!(lease.is_inside(&gate));
        assert_eq!(lease.port_id(), 3);
        lease.leave(&gate);
        lease.leave(&gate);
        assert!(gate.shut());
    }

    /// Stands for the device that queues poll: true while the port runs.
    #[test]
    fn nobody_is_inside_while_the_port_is_closed() {
        const OPENINGS: u16 = 1000;
        let (gate, ends, is_wrong) =
            (Gate::default(), AtomicBool::new(false), AtomicBool::new(false));
        let ports = [const { AtomicBool::new(false) }; 2];
        // If the gate is faulty, nobody sets `ends`.
        let deadline = Instant::now() + Duration::from_secs(30);
        let polled = thread::scope(|scope| {
            let poll = || {
                let (mut lease, mut polled) = (PortLease::new(), 0_u64);
                lease.validate();
                while !ends.load(Relaxed) && Instant::now() < deadline {
                    if lease.is_inside(&gate) {
                        let runs = ports[usize::from(lease.port_id())].load(Relaxed);
                        is_wrong.fetch_or(!runs, Relaxed);
                        polled += 1;
                    } else {
                        thread::yield_now();
                    }
                }
                lease.leave(&gate);
                polled
            };
            let pollers = [scope.spawn(poll), scope.spawn(poll)];
            for opening in 0..OPENINGS {
                let port = &ports[usize::from(opening % 2)];
                port.store(true, Relaxed);
                gate.open(opening % 2);
                thread::sleep(Duration::from_micros(50));
                while !gate.shut() {
                    thread::yield_now();
                }
                port.store(false, Relaxed);
            }
            ends.store(true, Relaxed);
            pollers.map(|poller| poller.join().unwrap())
        });
        assert!(!is_wrong.into_inner(), "one polls a port that is closed");
        assert!(polled.iter().all(|polled| *polled > 0), "{polled:?}");
        assert!(gate.shut());
    }
}
