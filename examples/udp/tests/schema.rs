//! The names in the programs' output.

use hotloop_tests::schema::run_and_check;

#[test]
fn the_schema_has_what_the_sink_says() {
    let arguments = ["--port", "net_null0", "--idle", "pause"];
    run_and_check("udp-sink", env!("CARGO_BIN_EXE_udp-sink"), &arguments);
}

#[test]
fn the_schema_has_what_the_source_says() {
    let arguments = ["--port", "net_null0", "--rate", "10000", "--idle", "pause"];
    run_and_check("udp-source", env!("CARGO_BIN_EXE_udp-source"), &arguments);
}
