//! Files of programs that run for long.
//!
//! - [`mod@file`]: reads a file that an operator names, in bounded time and memory.
//! - [`kept_file`]: replaces a file that a program keeps for its next start.
//! - [`certificates`]: reads the authorities that TLS trusts, and explains why TLS refuses a certificate.
//!
//! # Guarantees
//!
//! - Opening a file never waits for another program, as opening a FIFO does. Reads have a limit in bytes.
//! - A kept file has its old or its new content, whole, even after a loss of power. Only regular files are replaced or
//!   deleted.
//!
//! # Example
//!
//! ```
//! use hotloop_files::{file, kept_file};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("state.json");
//! kept_file::replace(&path, "{}")?;
//! assert_eq!(file::read(&path, 1024)?, b"{}");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Limits
//!
//! A disk that hangs makes its readers wait: call these functions from a thread that may.

#![forbid(unsafe_code)]

pub mod certificates;
pub mod file;
pub mod kept_file;
