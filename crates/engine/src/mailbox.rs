//! Questions from control to a core and its answers, without disturbing either.

use crate::deployment::Deployment;
use crate::per_core::PerCore;
use hotloop_ring::{Consumer, Producer, ring};
use std::fmt;

/// Makes the ends by which control asks each core that runs `group`: `capacity` requests fit into a
/// core's ring, and as many answers into the ring back.
///
/// A core's stage owns its [`Mailbox`] and looks into it between bursts. A request is handed out only
/// when there is room for its answer, so an answer never waits. What is sent is moved, not copied: a
/// core that has to answer with much fills memory that came with the request, and sends back what it
/// would otherwise have to free.
///
/// The factory of a stage in that group takes the mailbox of its core.
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
/// When there isn't memory for the rings.
pub fn mailbox<Q: Send, A: Send>(
    deployment: Deployment,
    group: usize,
    capacity: usize,
) -> (Asker<Q, A>, PerCore<Mailbox<Q, A>>) {
    let mut lanes = Vec::new();
    let mailboxes = PerCore::new(deployment, group, || {
        let (requests_tx, requests) = ring(capacity);
        let (answers, answers_rx) = ring(capacity);
        lanes.push(Lane { requests: requests_tx, answers: answers_rx });
        Mailbox { requests, answers, owed_count: 0 }
    });
    (Asker { lanes }, mailboxes)
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

impl<Q, A> fmt::Debug for Mailbox<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("owed_count", &self.owed_count).finish_non_exhaustive()
    }
}
