//! The names in the program's output.

use hotloop_tests::schema::run_and_check;

#[test]
fn the_schema_has_what_the_program_says() {
    let line = "--lan net_null0 --wan net_null1 --lan-address 10.0.0.1 --wan-address 192.0.2.1 \
                --next-hop-mac 02:00:00:00:00:01 --idle pause";
    let arguments: Vec<_> = line.split_whitespace().collect();
    run_and_check("nat44", env!("CARGO_BIN_EXE_nat44"), &arguments);
}
