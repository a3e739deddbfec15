#!/usr/bin/env python3
"""Plants faults in ipip-lb, one at a time, and lets demo/rounds.sh find them: a check that finds none of them checks
nothing. Not a part of CI: it builds ipip-lb once for each, and has the needs of the rounds.

    demo/mutants.py [NAME...]    these, or all; exit code 1 if one is not found

Mutants are built in target/mutants. If the original text of one is no longer in the sources, the program ends: adapt it.
"""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "mutants"
TREE = FOLDER / "tree"
PROGRAM = "examples/ipip-lb/src"
DATA_PATH = "crates/balancer/src"
CLUSTER = "crates/cluster/src"
RULES = "crates/agreement/src"

# Each: its name, the fault, the kinds of rounds to draw, the seeds, and edits: a file, the original text, and its
# replacement. In a round of any kind some connections end and begin again, most often by another balancer than later.
ROUND_COUNT = 15
MUTANTS = [
    (
        "sync-off",
        "nodes report nothing of their connections",
        "drain undrain apply shuffle kill",
        (1, 2),
        [(f"{CLUSTER}/sync/peers/sending.rs", "    fn push(&mut self, item: Item, now_ms: u64) -> bool {\n", """\
    fn push(&mut self, item: Item, now_ms: u64) -> bool {
        if matches!(item, Item::Claim(_)) {
            return true;
        }
""")],
    ),
    (
        "own-table",
        "packets of unknown connections go by each node's own table",
        "drain undrain shuffle kill",
        (1, 2),
        [(f"{DATA_PATH}/balance/schedule.rs", """\
    pub fn of_unknown(&self, services: &ServiceTable, key: &FlowKey) -> Option<TargetId> {
""", """\
    pub fn of_unknown(&self, services: &ServiceTable, key: &FlowKey) -> Option<TargetId> {
        if services.serial() > 0 {
            return None;
        }
""")],
    ),
    (
        "snapshot-skipped",
        "a node that starts hears what changes from then on, and nothing that was before",
        "drain undrain apply kill stop",
        (1, 2, 3),
        [(f"{PROGRAM}/control/cluster.rs", "sync.give_page(walk, claims, false)", "sync.give_page(walk, &claims[..0], false)")],
    ),
    (
        "announced-too-early",
        "a node that starts announces its VIPs at once",
        "apply late",
        (1, 2, 3),
        [(f"{PROGRAM}/control/cluster_link.rs", "is_none_or(|node| node.is_ready)", "is_none_or(|node| node.is_ready || true)")],
    ),
    (
        "silent-successor",
        "a connection that begins in the place of one that peers know is not claimed",
        "drain reuse reuse",
        (6, 1, 2),
        [(f"{DATA_PATH}/connection.rs", "self.begin(now);\n            self.share();", "self.begin(now);")],
    ),
    (
        "walk-skips-a-part",
        "of the connections, a walk marks those in the first quarter of the table",
        "move",
        (1, 2),
        [(f"{DATA_PATH}/balance/marking.rs", "        pass.done_count += SLOTS_A_STEP;\n", """\
        pass.done_count += SLOTS_A_STEP;
        let is_refresh = pass.purpose == Purpose::Refresh;
        let next = next.filter(|_| is_refresh || pass.done_count < connections.slot_count() / 4);
""")],
    ),
    (
        "earlier-claim-wins",
        "of two claims to a port, that of the earlier connection counts",
        "reuse meet",
        (1, 2),
        [(f"{RULES}/known.rs", "let is_later = claim.birth > entry.birth\n", """\
let is_later = claim.birth < entry.birth
""")],
    ),
]


def copy_tree():
    """Brings the copy of the sources up to date: only writes files that differ, so that cargo sees the changes."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    ).stdout.decode()
    wanted = {name for name in names.split("\0") if name and (ROOT / name).is_file()}
    for path in list(TREE.rglob("*")):
        if path.is_file() and str(path.relative_to(TREE)) not in wanted:
            path.unlink()
    for name in wanted:
        write(TREE / name, (ROOT / name).read_bytes())
        shutil.copymode(ROOT / name, TREE / name)


def write(path, content):
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def plant(name, edits):
    for file, old, new in edits:
        path = TREE / file
        text = path.read_text()
        if text.count(old) != 1:
            sys.exit(f"mutants: {name}: {file} has this {text.count(old)} times, not once:\n{old}")
        path.write_text(text.replace(old, new))


def build(name):
    """Builds the copy. Returns the program's path."""
    log_path = FOLDER / f"{name}.build"
    with open(log_path, "w") as log:
        command = ["cargo", "build", "--locked", "--package", "ipip-lb", "--target-dir", str(FOLDER)]
        if subprocess.run(command, cwd=TREE, stdout=log, stderr=log).returncode != 0:
            sys.exit(f"mutants: {name} does not build: {log_path}")
    program = FOLDER / name
    shutil.copy2(FOLDER / "debug" / "ipip-lb", program)
    return program


def play(program, deck, seed):
    """Plays rounds. Returns the findings: none if everything went well."""
    command = [ROOT / "demo/rounds.sh", program, "--rounds", str(ROUND_COUNT), "--seed", str(seed), "--deck", deck]
    done = subprocess.run(command, capture_output=True, text=True)
    Path(f"{program}.{seed}.log").write_text(done.stdout + done.stderr)
    if done.returncode == 0:
        return None
    found = re.search(r"In round (\d+): (.*)", done.stdout)
    count = re.search(r"(\d+) of \d+ connections are broken", done.stderr)
    # Waits on a busy machine prove nothing.
    if not (found and count):
        sys.exit(f"mutants: the rounds could not be played, or ended otherwise: {program}.{seed}.log")
    what = found[2].strip(". ")
    return f"round {found[1]}: {count[1]} broken; {what}"


def main():
    names = sys.argv[1:] or [mutant[0] for mutant in MUTANTS]
    unknown = set(names) - {mutant[0] for mutant in MUTANTS}
    if unknown:
        sys.exit(f"mutants: there is none called {', '.join(unknown)}")
    is_one_missed = False
    print(f"{'mutant':20} {'seed':>4} {'s':>5}  found")
    for name, _, deck, seeds, edits in MUTANTS:
        if name not in names:
            continue
        copy_tree()
        plant(name, edits)
        program = build(name)
        began = time.monotonic()
        for seed in seeds:
            found = play(program, deck, seed)
            if found:
                break
        is_one_missed |= not found
        print(f"{name:20} {seed:4} {time.monotonic() - began:5.0f}  {found or 'NOT FOUND'}", flush=True)
    sys.exit(is_one_missed)


if __name__ == "__main__":
    main()
