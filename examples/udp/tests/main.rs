//! All tests of both programs, in one program: each links DPDK's wrapper and the engine anew.

mod command;
mod ctl;
mod links;
mod pairs;
mod schema;
mod sink_links;
mod sink_malformed;
mod sink_privileges;
mod sink_program;
mod sink_standard_files;
mod socket_links;
mod source_privileges;
mod source_program;
