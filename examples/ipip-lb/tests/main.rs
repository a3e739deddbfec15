//! The tests that can run in one process, in one program, since linking one takes longer than
//! compiling it. Tests with signals or an EAL of their own, and the rounds of a cluster, have their
//! own programs.

mod bench;
#[path = "../../../tests/tests/kernel/beside/bird.rs"]
mod bird;
mod config;
mod deployed;
mod model;
mod namespace;
#[path = "../../../tests/tests/kernel/ping.rs"]
mod ping;

mod against_model;
mod announce;
mod any_bytes;
mod arguments;
mod bad_configuration;
mod balance;
mod capture;
mod control;
mod cut_frames;
mod ended_early;
mod exception;
mod exceptions;
mod flood;
mod held;
mod kept_headers;
mod kernel_flood;
mod kernel_next_hops;
mod malformed;
mod next_hop;
mod operator_file;
mod privileges;
mod probe_room;
mod queries;
mod recorded;
mod reference;
mod refresh;
mod reload;
mod replace;
mod replay;
mod replay_limits;
mod rules;
mod samples;
mod spoofed;
mod standard_files;
mod store;
mod store_phases;
mod sync;
mod sync_simulation;
mod takeover;
mod tunnel;
mod vlan;
mod web_config;
