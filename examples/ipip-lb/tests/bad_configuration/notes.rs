//! The notes of `check` on configurations that work but may surprise.

use super::cases::SOUND;
use super::understood::{printed, with};
use std::fmt::Write;

const CLUSTER: &str = "[cluster]\nnode = \"lb-1\"\nlisten = \"192.0.2.1:4790\"\ntrusted_network = true\n\
                       peers = [{ name = \"lb-2\", address = \"192.0.2.2:4790\" }]\n";

const READY: &str = "[announce]\nvips = \"ready\"";
const PROBED: &str = "health = { kind = \"tcp\" }";

#[test]
fn what_works_but_surprises_is_noted() {
    for (changes, note) in [
        (
            &[(28, "weight = 0"), (30, "address = \"10.0.0.2\"\nweight = 0")][..],
            "no backend of weight above 0: new flows",
        ),
        (&[(25, "scheduler = \"source\"")], "without persistence_s, a change of the backends"),
        (&[(25, "all_down = \"drop\"")], "all_down says nothing: without health"),
        (
            &[(19, CLUSTER), (25, "scheduler = \"round-robin\"")],
            "nearly every connection is an exc",
        ),
        (&[(19, CLUSTER), (25, "scheduler = \"source\"\npersistence_s = 9")], "is not known"),
        (&[(12, "maglev_slots = 101")], "maglev_slots = 211 mends that"),
        (&[(12, "maglev_slots = 211"), (28, "weight = 60000")], "2001:db8::a gets no flow"),
        (
            &[(12, "nested_backends = [\"203.0.113.10\"]"), (27, "address = \"203.0.113.10\"")],
            "203.0.113.10 is service web's address too",
        ),
        (
            &[(22, "address = \"192.0.2.1\"")],
            "its address holds the balancer's own 192.0.2.1 (decapsulate), 192.0.2.1 (source): ",
        ),
        (
            &[(7, "source_v4 = \"192.0.2.9\""), (22, "address = \"192.0.2.0/28\"")],
            "the balancer's own 192.0.2.1 (decapsulate), 192.0.2.9 (source): ",
        ),
        (&[(11, "tunnel_peers = [\"0.0.0.0/0\"]")], "tunnel_peers has 0.0.0.0/0: tunnels from"),
        (&[(11, "tunnel_peers = [\"::/0\"]")], "tunnel_peers has ::/0: tunnels from anybody"),
        (
            &[(19, READY), (25, PROBED)],
            "announce.vips = \"ready\" withdraws a VIP when all of its backends are down, although",
        ),
        (
            &[(
                19,
                "[[service]]\nname = \"a\"\naddress = \"203.0.113.10\"\nprotocol = \"any\"\nports = \"80\"\n\
                 [[service]]\nname = \"b\"\naddress = \"203.0.113.10\"\nprotocol = \"udp\"\nports = \"80\"",
            )],
            "no packet comes here: other services of its address take all of its ports",
        ),
    ] {
        let text = printed(&with(changes));
        assert!(text.contains("  note: ") && text.contains(note), "{note}: {text}");
    }
    // Neither key contradicts the other.
    for changes in [
        &[(19, READY)][..],
        &[(19, READY), (25, "all_down = \"drop\"\nhealth = { kind = \"tcp\" }")],
        &[(19, "[announce]\nvips = \"always\""), (25, PROBED)],
        &[(25, PROBED)],
    ] {
        let text = printed(&with(changes));
        assert!(!text.contains("withdraws a VIP"), "{changes:?}: {text}");
    }
}

/// Three services of two backends each take three tables of the largest size; for ten thousand
/// services a note recommends smaller ones.
#[test]
fn tables_that_take_much_memory_are_noted() {
    for (count, is_noted) in [(3, false), (10_000, true)] {
        let (head, _) = SOUND.split_once("[[service]]").unwrap();
        let mut text = head.to_owned();
        for index in 0..count {
            let [_, _, high, low] = u32::to_be_bytes(index);
            let own = format!("name = \"s{index}\"\naddress = \"20.0.{high}.{low}\"");
            let [a, b] = [1, 2].map(|net| format!("{{ address = \"10.{net}.{high}.{low}\" }}"));
            let backend = format!("backend = [{a}, {b}]");
            write!(text, "[[service]]\n{own}\nprotocol = \"tcp\"\nports = \"80\"\n{backend}\n")
                .unwrap();
        }
        let text = printed(&text);
        let note = "note: maglev_slots = 211 would do for these backends, in less memory";
        assert_eq!(text.contains(note), is_noted, "{count}");
        assert!(
            text.contains(&format!("  {count} Maglev tables of up to 65537 slots ")),
            "{count}"
        );
    }
}
