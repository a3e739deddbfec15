//! Programs that the compiler must refuse. The message of each case is committed beside it, and
//! each has a twin, one line different, that compiles, which proves that the compiler refuses that
//! line. The twins are modules of this program.
//!
//! Read messages that have changed, and then write them anew with `TRYBUILD=overwrite cargo test -p
//! hotloop --test compile_fail`.

#![allow(dead_code, reason = "the twins are only to compile")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[path = "compile_fail/clone_mbuf_compiles.rs"]
mod clone_mbuf;
#[path = "compile_fail/clone_rx_queue_compiles.rs"]
mod clone_rx_queue;
#[path = "compile_fail/clone_tx_queue_compiles.rs"]
mod clone_tx_queue;
#[path = "compile_fail/discarded_drop_compiles.rs"]
mod discarded_drop;
#[path = "compile_fail/each_before_its_input_compiles.rs"]
mod each_before_its_input;
#[path = "compile_fail/error_that_is_text_compiles.rs"]
mod error_that_is_text;
#[path = "compile_fail/error_without_a_type_compiles.rs"]
mod error_without_a_type;
#[path = "compile_fail/exit_without_fork_compiles.rs"]
mod exit_without_fork;
#[path = "compile_fail/forge_dropped_compiles.rs"]
mod forge_dropped;
#[path = "compile_fail/graph_without_a_sink_compiles.rs"]
mod graph_without_a_sink;
#[path = "compile_fail/item_with_an_rc_compiles.rs"]
mod item_with_an_rc;
#[path = "compile_fail/outlets_of_another_item_compiles.rs"]
mod outlets_of_another_item;
#[path = "compile_fail/poll_from_two_threads_compiles.rs"]
mod poll_from_two_threads;
#[path = "compile_fail/reason_of_another_stage_compiles.rs"]
mod reason_of_another_stage;
#[path = "compile_fail/send_shared_mbuf_compiles.rs"]
mod send_shared_mbuf;
#[path = "compile_fail/shard_by_a_length_compiles.rs"]
mod shard_by_a_length;
#[path = "compile_fail/share_queue_compiles.rs"]
mod share_queue;
#[path = "compile_fail/sink_after_routed_compiles.rs"]
mod sink_after_routed;
#[path = "compile_fail/sink_of_a_fork_compiles.rs"]
mod sink_of_a_fork;
#[path = "compile_fail/sink_without_a_result_compiles.rs"]
mod sink_without_a_result;
#[path = "compile_fail/stage_as_burst_stage_compiles.rs"]
mod stage_as_burst_stage;
#[path = "compile_fail/stage_before_its_input_compiles.rs"]
mod stage_before_its_input;
#[path = "compile_fail/write_through_shared_mbuf_compiles.rs"]
mod write_through_shared_mbuf;
#[path = "compile_fail/write_to_shared_bytes_compiles.rs"]
mod write_to_shared_bytes;

/// The cases, each with its twin's main function.
const CASES: [(&str, fn()); 24] = [
    ("clone_mbuf", clone_mbuf::main),
    ("clone_rx_queue", clone_rx_queue::main),
    ("clone_tx_queue", clone_tx_queue::main),
    ("discarded_drop", discarded_drop::main),
    ("each_before_its_input", each_before_its_input::main),
    ("error_that_is_text", error_that_is_text::main),
    ("error_without_a_type", error_without_a_type::main),
    ("exit_without_fork", exit_without_fork::main),
    ("forge_dropped", forge_dropped::main),
    ("graph_without_a_sink", graph_without_a_sink::main),
    ("item_with_an_rc", item_with_an_rc::main),
    ("outlets_of_another_item", outlets_of_another_item::main),
    ("poll_from_two_threads", poll_from_two_threads::main),
    ("reason_of_another_stage", reason_of_another_stage::main),
    ("send_shared_mbuf", send_shared_mbuf::main),
    ("shard_by_a_length", shard_by_a_length::main),
    ("share_queue", share_queue::main),
    ("sink_after_routed", sink_after_routed::main),
    ("sink_of_a_fork", sink_of_a_fork::main),
    ("sink_without_a_result", sink_without_a_result::main),
    ("stage_as_burst_stage", stage_as_burst_stage::main),
    ("stage_before_its_input", stage_before_its_input::main),
    ("write_through_shared_mbuf", write_through_shared_mbuf::main),
    ("write_to_shared_bytes", write_to_shared_bytes::main),
];

/// Maximum length of a message, in lines.
const LINES_MAX: usize = 15;

/// A case with a longer message, which shows the field that isn't `Send`: the compiler words it.
const LONGER: (&str, usize) = ("item_with_an_rc", 17);

#[test]
fn what_must_not_compile_does_not_and_says_why() {
    let cases = trybuild::TestCases::new();
    for (case, _) in CASES {
        cases.compile_fail(format!("tests/compile_fail/{case}.rs"));
    }
}

#[test]
fn each_case_has_a_message_and_a_twin_that_differs_in_one_line() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_fail");
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(&folder).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("names are text");
        texts.insert(name.to_owned(), fs::read_to_string(&path).expect("files can be read"));
    }
    // Only the case, its message and its twin.
    assert_eq!(texts.len(), 3 * CASES.len(), "{:?}", texts.keys());
    for (case, twin) in CASES {
        let message = &texts[&format!("{case}.stderr")];
        assert!(message.starts_with("error"), "{case}: {message}");
        let lines_max = if case == LONGER.0 { LONGER.1 } else { LINES_MAX };
        assert!(message.lines().count() <= lines_max, "{case}: {message}");
        assert_eq!(message.matches("error[").count(), 1, "{case}: {message}");
        let (fails, compiles) =
            (&texts[&format!("{case}.rs")], &texts[&format!("{case}_compiles.rs")]);
        assert_eq!(fails.lines().count(), compiles.lines().count(), "{case}");
        let pairs = fails.lines().zip(compiles.lines());
        let different = pairs.filter(|(fails, compiles)| fails != compiles).count();
        assert_eq!(different, 1, "{case}");
        twin();
    }
}
