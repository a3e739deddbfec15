//! Requests and replies on a control socket: JSON objects, one per line.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Weak};

/// The longest request, in bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 << 10;

/// The longest answer, in bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A client's request to a running program. On the socket it is `{"command": "drain", "arguments":
/// {"backend": "10.0.0.1"}}` and a line feed; `arguments` may be left out.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The command.
    pub command: String,
    /// The command's arguments, `null` if it takes none.
    #[serde(default)]
    pub arguments: Value,
}

impl Request {
    /// A request without arguments.
    #[must_use]
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), arguments: Value::Null }
    }

    /// A request with arguments.
    ///
    /// ```
    /// use hotloop_ops::Request;
    /// use serde_json::json;
    ///
    /// let request = Request::with("weight", json!({"backend": "10.0.0.1", "weight": 3}));
    /// assert_eq!(request.arguments["weight"], 3);
    /// ```
    #[must_use]
    pub fn with(command: impl Into<String>, arguments: Value) -> Self {
        Self { command: command.into(), arguments }
    }

    /// The error that a program answers to a command that it doesn't know.
    ///
    /// # Errors
    /// Always: it stands at the end of a `match` over commands.
    pub fn unknown(&self) -> Result<Reply, String> {
        let command: String = self.command.chars().take(40).collect();
        Err(format!("there is no command {command:?}; ctl --help lists what there is"))
    }

    /// Whether it is a query that every program answers.
    pub(crate) fn is_common_query(&self) -> bool {
        matches!(self.command.as_str(), "status" | "counters" | "load" | "xstats")
    }

    /// Parses a request, without its line feed.
    pub(crate) fn read(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| {
            format!(
                "this is no request: {error}; write {{\"command\": \"status\"}}, one a line, with \
                 \"arguments\" if the command takes any"
            )
        })
    }

    /// The request as a line.
    pub(crate) fn line(&self) -> Vec<u8> {
        line_of(&json!({"command": self.command, "arguments": self.arguments}))
    }
}

/// A program's reply to a request: its answer, or the promise of one.
#[derive(Debug)]
pub enum Reply {
    /// The answer, sent at once.
    Now(Result<Value, String>),
    /// The client waits for its answer, and others are served meanwhile. Made by [`Reply::later`].
    Later(Promise),
    /// The function that takes the connection over, and answers on it.
    Stream(Stream),
}

impl Reply {
    /// Returns a reply whose answer comes later, and the handle that sends that answer.
    ///
    /// ```
    /// use hotloop_ops::Reply;
    /// use serde_json::json;
    ///
    /// let (answerer, reply) = Reply::later();
    /// // In a later turn, or on another thread:
    /// answerer.send(Ok(json!("done")));
    /// # drop(reply);
    /// ```
    #[must_use]
    pub fn later() -> (Answerer, Self) {
        let (sender, line) = mpsc::channel();
        let client = Arc::new(());
        let answerer = Answerer { sender, client: Arc::downgrade(&client) };
        (answerer, Self::Later(Promise { line, _client: client }))
    }
}

/// Sends the answer of a [`Reply::later`]. If it is dropped instead, the client gets an error.
#[derive(Debug)]
pub struct Answerer {
    sender: Sender<Vec<u8>>,
    client: Weak<()>,
}

impl Answerer {
    /// Sends the answer. If the client has gone away, nothing happens.
    pub fn send(self, answer: Result<Value, String>) {
        let _ = self.sender.send(answer_line(answer));
    }

    /// Sends an answer that is JSON text already. Long answers should be: turning a [`Value`] of
    /// many megabytes into text takes time. The text has no line feed.
    pub fn send_text(self, json: &str) {
        let _ = self.sender.send(bounded([r#"{"ok":"#, json, "}\n"].concat().into_bytes()));
    }

    /// Whether the client still waits. If not, work for this client alone can end.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.client.strong_count() > 0
    }
}

/// The answer that a client waits for.
#[derive(Debug)]
pub struct Promise {
    line: Receiver<Vec<u8>>,
    /// Held as long as the client waits.
    _client: Arc<()>,
}

impl Promise {
    /// Returns the answer, once it is there, to callers that use a program without its
    /// [`Socket`](crate::Socket). Returns it once; after that, and if the [`Answerer`] is dropped
    /// without one, returns an error.
    #[must_use]
    pub fn answer(&self) -> Option<Result<Value, String>> {
        read_answer(&self.line()?)
    }

    /// The answer as a line, once it is there.
    pub(crate) fn line(&self) -> Option<Vec<u8>> {
        match self.line.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(answer_line(Err("the program gave this up: ask again".into())))
            }
        }
    }
}

/// Takes a connection over. It is called on the control thread, so it hands the connection on to
/// another.
pub struct Stream(Box<dyn FnOnce(UnixStream) + Send>);

impl Stream {
    /// Has `take` take the connection over. The connection doesn't block, but may be set to.
    pub fn new(take: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        Self(Box::new(take))
    }

    pub(crate) fn take(self, stream: UnixStream) {
        (self.0)(stream);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream(..)")
    }
}

impl From<Value> for Reply {
    /// The answer, sent at once.
    fn from(answer: Value) -> Self {
        Self::Now(Ok(answer))
    }
}

/// An answer as a line. One that is longer than a client reads becomes an error.
pub(crate) fn answer_line(answer: Result<Value, String>) -> Vec<u8> {
    let line = match answer {
        Ok(value) => line_of(&json!({"ok": value})),
        Err(error) => line_of(&json!({"error": error})),
    };
    bounded(line)
}

/// The line of an answer, or of an error if it is too long.
fn bounded(line: Vec<u8>) -> Vec<u8> {
    if line.len() <= ANSWER_BYTES_MAX {
        return line;
    }
    let error = format!(
        "the answer has {} bytes, and {ANSWER_BYTES_MAX} is the most: ask for less",
        line.len()
    );
    line_of(&json!({"error": error}))
}

/// Parses an answer, without its line feed. `None` if it is not valid.
pub(crate) fn read_answer(line: &[u8]) -> Option<Result<Value, String>> {
    let mut answer: Value = serde_json::from_slice(line).ok()?;
    if let Some(value) = answer.get_mut("ok") {
        return Some(Ok(value.take()));
    }
    answer.get("error")?.as_str().map(|error| Err(error.to_owned()))
}

/// JSON has no line feeds outside strings, and writes those inside as `\n`.
fn line_of(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trimmed(line: &[u8]) -> &[u8] {
        let (last, line) = line.split_last().unwrap();
        assert_eq!(*last, b'\n');
        assert!(!line.contains(&b'\n'));
        line
    }

    #[test]
    fn what_is_written_is_read() {
        for request in [
            Request::new("status"),
            Request::with("lookup", json!({"flow": "a\nb \u{7f} \"c\"", "deep": [1, {"x": null}]})),
        ] {
            assert_eq!(Request::read(trimmed(&request.line())), Ok(request));
        }
        for answer in [Ok(json!([1, 2])), Ok(Value::Null), Err("no such\nbackend".to_owned())] {
            assert_eq!(read_answer(trimmed(&answer_line(answer.clone()))), Some(answer));
        }
        assert_eq!(Request::read(b"{\"command\": \"status\"}"), Ok(Request::new("status")));
    }

    #[test]
    fn what_is_no_request_is_answered_with_what_to_write() {
        let deep = "[".repeat(10_000);
        let unknown = r#"{"command": "a", "argument": 1}"#;
        for line in ["", "status", "{}", "[]", r#"{"command": 7}"#, "\u{0}", &deep, unknown] {
            let error = Request::read(line.as_bytes()).unwrap_err();
            assert!(error.contains("{\"command\": \"status\"}"), "{line:.20}: {error}");
        }
        Request::read(b"\xff\xfe").unwrap_err();
    }

    #[test]
    fn what_is_no_answer_is_found() {
        for line in ["", "ok", "{}", "[]", r#"{"error": 7}"#] {
            assert_eq!(read_answer(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn an_answer_that_is_too_long_becomes_an_error() {
        let long = Value::from("x".repeat(ANSWER_BYTES_MAX));
        let (answerer, reply) = Reply::later();
        answerer.send_text(&long.to_string());
        let Reply::Later(promise) = reply else { panic!("{reply:?}") };
        for line in [answer_line(Ok(long)), promise.line().unwrap()] {
            let error = read_answer(trimmed(&line)).unwrap().unwrap_err();
            assert!(error.contains("16777216 is the most"), "{error}");
        }
    }

    #[test]
    fn an_answer_of_text_is_that_of_its_value() {
        let value = json!({"rows": [{"a": "\n"}, 1]});
        let (answerer, reply) = Reply::later();
        assert!(answerer.is_awaited());
        answerer.send_text(&value.to_string());
        let Reply::Later(promise) = reply else { panic!("{reply:?}") };
        assert_eq!(promise.answer(), Some(Ok(value)));
        let (answerer, reply) = Reply::later();
        drop(reply);
        assert!(!answerer.is_awaited());
    }

    #[test]
    fn an_unknown_command_is_named_but_not_echoed_at_length() {
        let error = Request::new("x".repeat(5000)).unknown().unwrap_err();
        assert!(error.contains("xxx") && error.len() < 120, "{error}");
    }
}
