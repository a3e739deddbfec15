//! The committed bindings are those that bindgen makes from the shim's header.
#![cfg(feature = "bindgen")]
#![allow(clippy::print_stdout, reason = "a test says what it skips")]

#[test]
fn kept_bindings_are_those_that_bindgen_makes() {
    let kept = include_str!("../src/bindings.rs");
    let made = include_str!(concat!(env!("OUT_DIR"), "/bindings.rs"));
    if made.is_empty() {
        return println!("skipped: bindgen finds no libclang");
    }
    let file = concat!(env!("OUT_DIR"), "/bindings.rs");
    assert!(kept == made, "they differ; copy {file} to src/bindings.rs of hotloop-dpdk-sys");
}
