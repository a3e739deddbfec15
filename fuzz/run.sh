#!/usr/bin/env bash
# Usage: fuzz/run.sh TARGET [SECONDS [--keep]]
#
# Searches for bytes that break a guarantee of a target, guided by coverage, for 60 seconds or SECONDS. The targets are
# the folders of fuzz/corpus. With --keep, the inputs that reached new code are added there.
#
# The fuzzer is LLVM's libFuzzer, which the crate libfuzzer-sys builds from source; the flags are those of cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-} seconds=${2:-60} keep=${3:-}
if [[ ! $target =~ ^[a-z]+$ || ! -d fuzz/corpus/$target || ! $seconds =~ ^[0-9]+$ || ! $keep =~ ^(--keep)?$ ]]; then
    echo "usage: $0 TARGET [SECONDS [--keep]]; the targets are $(cd fuzz/corpus && echo *)" >&2
    exit 2
fi
cargo xtask setup --fuzz

# A target folder of its own, and the host named: the flags then reach neither other builds nor build scripts.
host=$(rustc -vV | sed -n 's/^host: //p')
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/fuzz
RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$folder CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
RUSTFLAGS='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks -Zsanitizer=address' \
    cargo build --locked --release --package hotloop-fuzz --features libfuzzer --target "$host"

corpus=fuzz/corpus/$target found=$folder/corpus/$target failed=$folder/failed/$target
mkdir -p "$found" "$failed"
# DPDK frees nothing before the process ends. An input has at most 4,096 bytes and 10 seconds.
export HOTLOOP_FUZZ_TARGET=$target ASAN_OPTIONS=detect_leaks=0
fuzzer=("$folder/$host/release/fuzz" -max_len=4096 -timeout=10)
"${fuzzer[@]}" -artifact_prefix="$failed/" -max_total_time="$seconds" "$found" "$corpus" || {
    echo "The input that failed is in $failed. Copy it to $corpus once the fault is fixed: the tests replay it." >&2
    exit 1
}
[ -z "$keep" ] || "${fuzzer[@]}" -set_cover_merge=1 "$corpus" "$found"
