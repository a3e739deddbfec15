//! Requests from control to a core and the core's answers, without disturbing either.

use crate::deployment::Deployment;
use crate::per_core::PerCore;
use hotloop_ring::{Consumer, Producer, ring};
use std::fmt;

/// Makes the two ends for requests from control to each core that runs `group`: a core's ring has
/// room for `capacity` requests, and the ring back for `capacity` answers.
///
/// A core's stage owns its [`Mailbox`] and polls it between bursts. A request is returned only if
/// there is room for its answer, so an answer never waits. Values are moved, not copied: a core
/// with a long answer fills memory that came with the request, and sends back memory that it would
/// otherwise have to free.
///
/// The factory of a stage in that group takes its core's mailbox.
///
/// ```
/// use hotloop_engine::{Deployment, mailbox};
/// use hotloop_stage::Core;
///
/// let deployment = Deployment::run_to_completion(2);
/// let (mut asker, mailboxes) = mailbox::<&str, usize>(deployment, 0, 8);
/// let core = Core::new(1, 2);
/// let mut mailbox = mailboxes.take(&core).expect("the factory of another stage took it");
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
/// If there isn't enough memory for the rings.
pub fn mailbox<Q: Send, A: Send>(
    deployment: Deployment,
    group: usize,
    capacity: usize,
) -> (Asker<Q, A>, PerCore<Mailbox<Q, A>>) {
    let mut workers = Vec::new();
    let mailboxes = PerCore::new(deployment, group, || {
        let (requests_tx, requests) = ring(capacity);
        let (answers, answers_rx) = ring(capacity);
        workers.push(WorkerRings { requests: requests_tx, answers: answers_rx });
        Mailbox { requests, answers, owed_count: 0 }
    });
    (Asker { workers }, mailboxes)
}

/// Control's end of [`mailbox`].
pub struct Asker<Q, A> {
    workers: Vec<WorkerRings<Q, A>>,
}

/// The rings to one core and back.
struct WorkerRings<Q, A> {
    requests: Producer<Q>,
    answers: Consumer<A>,
}

impl<Q: Send, A: Send> Asker<Q, A> {
    /// Sends a request to the core with this number. Never waits.
    ///
    /// # Errors
    /// Returns the request if the core's ring is full, if its mailbox was dropped, or if there is
    /// no such core.
    pub fn ask(&mut self, core: usize, request: Q) -> Result<(), Q> {
        match self.workers.get_mut(core) {
            Some(rings) if !rings.requests.is_closed() => rings.requests.push(request),
            _ => Err(request),
        }
    }

    /// The next answer of the core with this number, in the order that the core answered. `None` if
    /// it has not answered yet. Once the core's mailbox is dropped, at the end of the run, no more
    /// answers come.
    pub fn answer(&mut self, core: usize) -> Option<A> {
        self.workers.get_mut(core)?.answers.pop()
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
        f.debug_struct("Asker").field("cores", &self.workers.len()).finish_non_exhaustive()
    }
}

impl<Q, A> fmt::Debug for Mailbox<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("owed_count", &self.owed_count).finish_non_exhaustive()
    }
}
