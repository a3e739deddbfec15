//! `udp-sink` and `udp-source`: UDP datagrams received and sent, through DPDK's devices or the kernel's sockets.
//!
//! Both are network functions of the same engine, with either kind of I/O: see [`sink`] and
//! [`source`].

#![forbid(unsafe_code)]

pub mod address;
pub mod arguments;
pub mod inspect;
pub mod interfaces;
pub mod output;
pub mod rate;
pub mod running;
pub mod sink;
pub mod source;
pub mod stamp;
pub mod verify;
