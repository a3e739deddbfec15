//! Questions from control to a core and its answers, without disturbing either.

use hotloop_ring::{Consumer, Producer, ring};
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Makes the ends by which control asks each of `core_count` cores: `capacity` requests fit into a
/// core's ring, and as many answers into the ring back.
///
/// A core's stage owns its [`Mailbox`] and looks into it between bursts. A request is handed out only
/// when there is room for its answer, so an answer never waits. What is sent is moved, not copied: a
/// core that has to answer with much fills memory that came with the request, and sends back what it
/// would otherwise have to free.
///
/// A core takes its own by its number, which counts the cores of a role.
///
/// ```
/// use hotloop_engine::mailbox;
///
/// let (mut asker, mailboxes) = mailbox::<&str, usize>(2, 8);
/// let mut mailbox = mailboxes.take(1).expect("nobody has taken it");
///
/// asker.ask(1, "how long is this?").expect("room for a request");
/// assert_eq!(asker.answer(1), None);
/// while let Some(request) = mailbox.request() {
///     mailbox.answer(request.len());
/// }
/// assert_eq!(asker.answer(1), Some(17));
/// ```
///
/// # Panics
/// When there isn't memory for the rings.
pub fn mailbox<Q: Send, A: Send>(
    core_count: usize,
    capacity: usize,
) -> (Asker<Q, A>, Mailboxes<Q, A>) {
    let (lanes, mailboxes) = (0..core_count)
        .map(|_| {
            let (requests_tx, requests) = ring(capacity);
            let (answers, answers_rx) = ring(capacity);
            let mailbox = Mailbox { requests, answers, owed_count: 0 };
            (Lane { requests: requests_tx, answers: answers_rx }, Mutex::new(Some(mailbox)))
        })
        .unzip();
    (Asker { lanes }, Mailboxes { mailboxes })
}

/// Control's end of [`mailbox`].
pub struct Asker<Q, A> {
    lanes: Vec<Lane<Q, A>>,
}

/// The way to one core and back.
struct Lane<Q, A> {
    requests: Producer<Q>,
    answers: Consumer<A>,
}

impl<Q: Send, A: Send> Asker<Q, A> {
    /// Asks the core of this number. Never waits.
    ///
    /// # Errors
    /// Gives the request back where the core has as many already, where its mailbox was dropped, and
    /// where there is no such core.
    pub fn ask(&mut self, core: usize, request: Q) -> Result<(), Q> {
        match self.lanes.get_mut(core) {
            Some(lane) if !lane.requests.is_closed() => lane.requests.push(request),
            _ => Err(request),
        }
    }

    /// The next answer of the core of this number, in the order of its answering. None where there is
    /// none yet; nor will there be once its mailbox was dropped, which it is at the end of the run.
    pub fn answer(&mut self, core: usize) -> Option<A> {
        self.lanes.get_mut(core)?.answers.pop()
    }
}

/// The mailboxes of a [`mailbox()`], for factories to take from.
pub struct Mailboxes<Q, A> {
    /// Locked as a core is made, never while it runs.
    mailboxes: Vec<Mutex<Option<Mailbox<Q, A>>>>,
}

impl<Q, A> Mailboxes<Q, A> {
    /// The mailbox at `index`; none where it was taken before, or there are not so many.
    pub fn take(&self, index: usize) -> Option<Mailbox<Q, A>> {
        self.mailboxes.get(index)?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A core's end of [`mailbox()`]: a field of the stage that answers.
pub struct Mailbox<Q, A> {
    requests: Consumer<Q>,
    answers: Producer<A>,
    /// Requests handed out and not answered yet.
    owed_count: usize,
}

impl<Q, A> Mailbox<Q, A> {
    /// The next request, if there is one and room for its answer: to be called between bursts, in the
    /// stage's `tick`. It is one read where there is none.
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

    /// Answers a request. Several may be answered in any order, and in later turns.
    ///
    /// # Panics
    /// When there are more answers than requests.
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
        f.debug_struct("Asker").field("cores", &self.lanes.len()).finish_non_exhaustive()
    }
}

impl<Q, A> fmt::Debug for Mailboxes<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailboxes").field("count", &self.mailboxes.len()).finish_non_exhaustive()
    }
}

impl<Q, A> fmt::Debug for Mailbox<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("owed_count", &self.owed_count).finish_non_exhaustive()
    }
}
