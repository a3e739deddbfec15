//! Captures of a running program's packets, for a client that writes the file.
//!
//! A client sends [`CaptureArgs`] as JSON over a connection to the program, and the connection becomes the
//! capture's stream. After the answer, a line of JSON, come pieces of a pcapng file, each preceded by
//! its length in four bytes, little-endian. A length of 0 ends them, and the [`Summary`] follows as
//! a line. The client writes the file, with its own rights, its own quota and at its own pace. It
//! ends the capture by closing its side.
//!
//! - [`Sessions`] is the program's side: a thread for each capture, which ends with the program.
//! - [`read_piece`] is for the client's side, which knows how to connect.
//!
//! # Guarantees
//!
//! - If a client goes away or stops reading, the program loses only the capture's own records. No
//!   other thread waits for a client, and at most 16 captures are served at a time.
//! - The threads of captures have no capabilities.
//!
//! # Example
//!
//! ```
//! use hotloop_live::{Sessions, Summary, read_piece};
//! use hotloop_watch::Taps;
//! use serde_json::{Value, json};
//! use std::io::{BufRead, BufReader, Read};
//! use std::os::unix::net::UnixStream;
//!
//! // The taps of an engine without cores.
//! let (taps, mut sessions) = (Taps::new(None, false), Sessions::default());
//! let line = |answer: Result<Value, String>| format!("{}\n", json!(answer)).into_bytes();
//! let begin = sessions.begin(taps, &json!({"at": ["drop"]}), line)?;
//!
//! let (client, program) = UnixStream::pair()?;
//! begin(program);
//! let mut client = BufReader::new(client);
//! let mut answer = String::new();
//! client.read_line(&mut answer)?;
//! assert_eq!(answer, "{\"Ok\":{\"snaplen\":262144}}\n");
//! let mut file = Vec::new();
//! while let Some(piece) = read_piece(&mut |bytes| client.read_exact(bytes))? {
//!     file.extend(piece);
//! }
//! answer.clear();
//! client.read_line(&mut answer)?;
//! let summary: Result<Summary, String> = serde_json::from_str(&answer)?;
//! assert_eq!(summary?, Summary { bytes: file.len() as u64, ..Summary::default() });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//!
//! Expressions need feature `dpdk`. Without it, a client filters the file itself.

#![forbid(unsafe_code)]

mod args;
mod client;
mod piece;
mod session;
mod sessions;
mod summary;

pub use args::CaptureArgs;
pub use client::AnswerLine;
pub use piece::read_piece;
pub use session::Annotate;
pub use sessions::Sessions;
pub use summary::Summary;
