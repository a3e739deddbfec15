//! The fuzzer of one target, selected with `HOTLOOP_FUZZ_TARGET`: `fuzz/run.sh` builds and runs it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fn target() -> fn(&[u8]) {
    let name = std::env::var("HOTLOOP_FUZZ_TARGET").unwrap_or_default();
    hotloop_fuzz::target(&name).unwrap_or_else(|| panic!("there is no target {name:?}"))
}

fuzz_target!(|bytes: &[u8]| TARGET.get_or_init(target)(bytes));
