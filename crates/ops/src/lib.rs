//! Running a program built on hotloop: its control socket, and reloading its configuration.

#![forbid(unsafe_code)]
