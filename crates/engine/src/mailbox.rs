//! Requests from control to a core and the core's answers, without disturbing either.

use hotloop_ring::{Consumer, Producer, ring};
use hotloop_stage::{Core, Error};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Makes the two ends for requests from control to the cores of a group: a core's ring has room for
/// `capacity` requests, and the ring back for `capacity` answers.
///
/// A core's stage owns its [`Mailbox`] and polls it between bursts. A request is returned only if
/// there is room for its answer, so an answer never waits. Values are moved, not copied: a core
/// with a long answer fills memory that came with the request, and sends back memory that it would
/// otherwise have to free.
///
/// The factory of a stage opens its core's mailbox by [`Mailboxes::open`], whatever group the stage
/// is in and however many cores there are.
///
/// ```
/// use hotloop_engine::mailbox;
/// use hotloop_stage::Core;
///
/// # fn main() -> Result<(), hotloop_stage::Error> {
/// let (mut asker, mailboxes) = mailbox::<&str, usize>(8);
/// let mut mailbox = mailboxes.open(&Core::new(0, 1))?;
///
/// for core in asker.cores() {
///     asker.ask(core, "how long is this?").expect("room for a request");
/// }
/// assert_eq!(asker.answer(0), None);
/// while let Some(request) = mailbox.request() {
///     mailbox.answer(request.len());
/// }
/// assert_eq!(asker.answer(0), Some(17));
/// # Ok(())
/// # }
/// ```
pub fn mailbox<Q: Send, A: Send>(capacity: usize) -> (Asker<Q, A>, Mailboxes<Q, A>) {
    let opened = Arc::new(Mutex::new(Opened { group: None, cores: Vec::new() }));
    (Asker { opened: Arc::clone(&opened) }, Mailboxes { capacity, opened })
}

/// The factories' end of [`mailbox()`], for all cores of a group.
pub struct Mailboxes<Q, A> {
    capacity: usize,
    opened: Arc<Mutex<Opened<Q, A>>>,
}

/// Control's ends of the rings. Locked by factories and by control, never by a core that runs.
struct Opened<Q, A> {
    /// The group of the cores, once one has opened its mailbox.
    group: Option<usize>,
    /// For each core of the group, if it has opened its mailbox.
    cores: Vec<Option<CoreRings<Q, A>>>,
}

/// Locks the rings. A panic can't leave them half changed.
fn lock<Q, A>(opened: &Mutex<Opened<Q, A>>) -> MutexGuard<'_, Opened<Q, A>> {
    opened.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<Q: Send, A: Send> Mailboxes<Q, A> {
    /// Opens the mailbox of `core`. Call this in a stage's factory: it allocates the rings, and
    /// locks out control for a moment.
    ///
    /// # Errors
    /// If the core has opened its mailbox before, or if cores of another group have: each stage
    /// that answers needs a [`mailbox()`] of its own.
    ///
    /// # Panics
    /// If there isn't enough memory for the rings.
    pub fn open(&self, core: &Core) -> Result<Mailbox<Q, A>, Error> {
        let (index, group) = (core.index(), core.group());
        let mut opened = lock(&self.opened);
        let first = *opened.group.get_or_insert(group);
        if group != first {
            return Err(Error::message(format!(
                "core {index} of group {group} can't open this mailbox, which cores of group \
                 {first} have opened: make a mailbox for each stage that answers"
            )));
        }
        if opened.cores.len() < core.count().max(index + 1) {
            opened.cores.resize_with(core.count().max(index + 1), || None);
        }
        let place = &mut opened.cores[index];
        if place.is_some() {
            return Err(Error::message(format!(
                "core {index} of group {group} has opened this mailbox before: make a mailbox for \
                 each stage that answers, and for each run"
            )));
        }
        let (requests_tx, requests) = ring(self.capacity);
        let (answers, answers_rx) = ring(self.capacity);
        *place = Some(CoreRings { requests: requests_tx, answers: answers_rx });
        Ok(Mailbox { requests, answers, owed_count: 0 })
    }
}

impl<Q, A> Clone for Mailboxes<Q, A> {
    fn clone(&self) -> Self {
        Self { capacity: self.capacity, opened: Arc::clone(&self.opened) }
    }
}

/// Control's end of [`mailbox()`].
pub struct Asker<Q, A> {
    opened: Arc<Mutex<Opened<Q, A>>>,
}

/// The rings to one core and back.
struct CoreRings<Q, A> {
    requests: Producer<Q>,
    answers: Consumer<A>,
}

impl<Q: Send, A: Send> Asker<Q, A> {
    /// The numbers of all cores of the group that the mailboxes are opened in. Empty before the
    /// first is opened; all are open once the cores have started, when control begins.
    #[must_use]
    pub fn cores(&self) -> Range<usize> {
        0..lock(&self.opened).cores.len()
    }

    /// Sends a request to the core with this number. Never waits for the core.
    ///
    /// # Errors
    /// Returns the request if the core's ring is full, if its mailbox was dropped, or if it has
    /// opened none.
    pub fn ask(&mut self, core: usize, request: Q) -> Result<(), Q> {
        match lock(&self.opened).cores.get_mut(core) {
            Some(Some(rings)) if !rings.requests.is_closed() => rings.requests.push(request),
            _ => Err(request),
        }
    }

    /// The next answer of the core with this number, in the order that the core answered. `None` if
    /// it has not answered yet. Once the core's mailbox is dropped, at the end of the run, no more
    /// answers come.
    pub fn answer(&mut self, core: usize) -> Option<A> {
        lock(&self.opened).cores.get_mut(core)?.as_mut()?.answers.pop()
    }
}

/// A core's end of [`mailbox()`]: a field of the stage that answers.
pub struct Mailbox<Q, A> {
    requests: Consumer<Q>,
    answers: Producer<A>,
    /// Number of requests returned but not answered yet.
    owed_count: usize,
}

impl<Q, A> Mailbox<Q, A> {
    /// The next request, if there is one and room for its answer. Call this between bursts, in the
    /// stage's `tick`. It costs one read if there is no request.
    #[inline(always)]
    pub fn request(&mut self) -> Option<Q> {
        if self.requests.is_empty() { None } else { self.next_request() }
    }

    #[cold]
    fn next_request(&mut self) -> Option<Q> {
        if self.answers.room_for(self.owed_count + 1) <= self.owed_count {
            return None;
        }
        let request = self.requests.pop()?;
        self.owed_count += 1;
        Some(request)
    }

    /// Answers a request. If there are several, they may be answered in any order, and in later
    /// turns.
    ///
    /// # Panics
    /// If there are more answers than requests.
    pub fn answer(&mut self, answer: A) {
        assert!(self.owed_count > 0, "a mailbox takes one answer for each request, and no more");
        self.owed_count -= 1;
        let answered = self.answers.push(answer);
        debug_assert!(
            answered.is_ok(),
            "a request is handed out when there is room for its answer"
        );
    }
}

impl<Q, A> fmt::Debug for Asker<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core_count = lock(&self.opened).cores.len();
        f.debug_struct("Asker").field("cores", &core_count).finish_non_exhaustive()
    }
}

impl<Q, A> fmt::Debug for Mailboxes<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailboxes").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl<Q, A> fmt::Debug for Mailbox<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("owed_count", &self.owed_count).finish_non_exhaustive()
    }
}
