//! Replays the fuzzer's findings: inputs that reached new code, and those that once failed.

use hotloop_fuzz::TARGETS;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn replay(name: &str) {
    let run = hotloop_fuzz::target(name).expect("a target");
    let inputs = corpus(name);
    assert!(inputs.len() >= 10, "{name}: a corpus of {} inputs", inputs.len());
    for input in &inputs {
        let bytes = fs::read(input).unwrap();
        assert!(catch_unwind(|| run(&bytes)).is_ok(), "{}", input.display());
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                replay(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_replayed() {
            let replayed = [$(stringify!($name)),*];
            let names = TARGETS.map(|(name, _)| name);
            assert_eq!(replayed, names);
        }
    };
}

targets!(headers balancer captures configuration control device kernel neighbours sync);
