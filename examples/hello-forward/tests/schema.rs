//! The names in the program's output.

use hotloop_tests::schema::run_and_check;

#[test]
fn the_schema_has_what_the_program_says() {
    run_and_check("hello-forward", env!("CARGO_BIN_EXE_hello-forward"), &["--idle", "pause"]);
}
