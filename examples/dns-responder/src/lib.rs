//! A DNS responder: it answers queries over UDP from a zone file, in the packets that they came in.
//!
//! - [`Zone`](zone::Zone) is the content of the file, in the form of messages.
//! - [`Responder`](responder::Responder) is the stage that turns queries into answers.
//!
//! ```
//! use dns_responder::{responder::Responder, zone::Zone};
//! use hotloop::packet::{ethernet::MacAddress, memory::MemPacket};
//! use hotloop::prelude::*;
//! use std::sync::Arc;
//!
//! let zone = Arc::new(Zone::parse("example.com 300 192.0.2.1\nwww.example.com 300 192.0.2.80")?);
//! let mac = MacAddress::new([2, 0, 0, 0, 0, 9]);
//! let mut responder = bench(Responder { mac, addresses: vec![[192, 0, 2, 53].into()], zone });
//!
//! let question = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x03com\x00\x00\x01\x00\x01";
//! let query = udp().from("10.0.0.7:5000").to("192.0.2.53:53").payload(question);
//! let query = MemPacket::with_room(&query.build(), 128, 1024);
//! let query = bench(Classify::outermost()).feed_items([query]).into_packets();
//! let out = responder.feed_items(query);
//! assert!(out.packets()[0].data().ends_with(&[0, 4, 192, 0, 2, 80]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod responder;
pub mod zone;

/// The page's sample, included here to be compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
