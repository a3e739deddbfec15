//! The captures of a program, each on a thread of its own.

use crate::args::Wanted;
use crate::client::{AnswerLine, Client, END_WAIT};
use crate::session::{Annotate, serve};
use hotloop_privileges::{Capabilities, keep};
use hotloop_watch::Taps;
use serde_json::Value;
use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The maximum number of capture requests served at a time, including those that will be refused.
const SESSION_COUNT_MAX: usize = 16;

/// How often to check, at the end of the program, whether the captures have ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The captures of a program, which end with it.
#[derive(Default)]
pub struct Sessions {
    is_ending: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
    annotate: Option<Annotate>,
}

impl Sessions {
    /// Sets the function that comments on packets, for captures that begin from now on.
    pub fn annotate(&mut self, annotate: Annotate) {
        self.annotate = Some(annotate);
    }

    /// Begins the capture that a request's arguments describe, on a thread of its own: nothing waits here.
    /// Returns the function that takes the client's connection over.
    ///
    /// # Errors
    /// The arguments are wrong, there are too many captures, or the system refuses a thread.
    pub fn begin(
        &mut self,
        taps: Taps,
        arguments: &Value,
        answer_line: AnswerLine,
    ) -> Result<impl FnOnce(UnixStream) + Send + use<>, String> {
        self.threads.retain(|thread| !thread.is_finished());
        if self.count.load(Relaxed) >= SESSION_COUNT_MAX {
            return Err("too many capture requests at a time: end one first".into());
        }
        let wanted = Wanted::read(arguments)?;
        let (is_ending, count) = (Arc::clone(&self.is_ending), Arc::clone(&self.count));
        let annotate = self.annotate.clone();
        let (hand_over, stream) = std::sync::mpsc::sync_channel::<UnixStream>(1);
        let session = move || {
            keep(Capabilities::empty());
            if let Ok(stream) = stream.recv() {
                let client = Client::new(stream, answer_line, &is_ending);
                // If the client is gone, there is no one left to answer.
                let _ = client.and_then(|client| serve(client, &taps, &wanted, annotate));
            }
            count.fetch_sub(1, Relaxed);
        };
        self.count.fetch_add(1, Relaxed);
        match std::thread::Builder::new().name("capture".into()).spawn(session) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                self.count.fetch_sub(1, Relaxed);
                return Err(format!("no thread for a capture: {error}; try again"));
            }
        }
        Ok(move |stream| _ = hand_over.send(stream))
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Drop for Sessions {
    /// Ends the captures, and waits until clients have received the rest, a few seconds at most.
    fn drop(&mut self) {
        self.is_ending.store(true, Relaxed);
        let deadline = Instant::now() + 2 * END_WAIT;
        while Instant::now() < deadline && self.threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}
