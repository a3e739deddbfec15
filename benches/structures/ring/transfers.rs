//! Counts the cache lines that move between two cores for each batch, with a model. A core that
//! writes a line takes it from the other core's cache, and each ring reads and writes lines as its
//! source does. Unlike times, the counts do not depend on the cores' distance.

use super::{CAPACITY, PEERS};
use std::collections::HashMap;

const BATCHES: [usize; 3] = [8, 32, 64];

/// Number of batches, in which the ring is gone round several times.
const BATCH_COUNT: usize = 1_000;

const LINE_ITEMS: usize = 8;

/// A line: of items, identified by its number, or with an index.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
enum Line {
    Items(usize),
    Index(&'static str),
}

/// The cores that have a line.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Holders {
    Both,
    Only(End),
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum End {
    Producer,
    Consumer,
}

#[derive(Default)]
struct Caches {
    lines: HashMap<Line, Holders>,
    transfer_count: usize,
}

impl Caches {
    fn read(&mut self, end: End, line: Line) {
        let holders = self.lines.entry(line).or_insert(Holders::Only(end));
        if *holders != Holders::Only(end) {
            self.transfer_count += usize::from(*holders != Holders::Both);
            *holders = Holders::Both;
        }
    }

    /// Takes the line from the other core, if that has it.
    fn write(&mut self, end: End, line: Line) {
        let holders = self.lines.insert(line, Holders::Only(end));
        self.transfer_count += usize::from(holders.is_some_and(|it| it != Holders::Only(end)));
    }

    fn write_all(&mut self, end: End, lines: &[usize]) {
        lines.iter().for_each(|line| self.write(end, Line::Items(*line)));
    }

    fn read_all(&mut self, end: End, lines: &[usize]) {
        lines.iter().for_each(|line| self.read(end, Line::Items(*line)));
    }
}

/// The lines that change hands for a batch, by its size and by ring. Before each push, the consumer
/// looks for an item in vain.
pub fn note() -> String {
    let batches = BATCHES.map(|batch| {
        let rings: [fn(usize, usize, &mut Caches); 5] =
            [records, rte_ring, late_indices, late_indices, stamps];
        let counts = rings.map(|ring| {
            let mut caches = Caches::default();
            (0..BATCH_COUNT).for_each(|number| ring(number, batch, &mut caches));
            caches.transfer_count as f64 / BATCH_COUNT as f64
        });
        let names = ["hotloop"].into_iter().chain(PEERS);
        let shown: Vec<_> =
            names.zip(counts).map(|(name, count)| format!("{name} {count:.1}")).collect();
        format!("batch {batch}: {}", shown.join(", "))
    });
    format!(
        "cache lines that change hands for a batch between two cores, by a model: {}",
        batches.join("; ")
    )
}

/// The lines that hold `count` items, starting with `first`, in a ring of `line_count` lines of `line_items` items.
fn lines(first: usize, count: usize, line_items: usize, line_count: usize) -> Vec<usize> {
    let end = (first + count).div_ceil(line_items);
    (first / line_items..end).map(|line| line % line_count).collect()
}

/// hotloop: lines that begin with a header, or records of several lines with one. The header after
/// them is cleared before they are shown. The consumer waits for the next header.
fn records(number: usize, batch: usize, caches: &mut Caches) {
    /// The number in a ring for [`CAPACITY`] items.
    const LINE_COUNT: usize = 227;
    const LONG: usize = 28;
    let items = if batch < LONG {
        lines(number * batch, batch, 7, LINE_COUNT)
    } else {
        // The last line is not filled.
        let count = (batch + 1).div_ceil(LINE_ITEMS);
        lines(number * count * LINE_ITEMS, count * LINE_ITEMS, LINE_ITEMS, LINE_COUNT)
    };
    let next = (items[items.len() - 1] + 1) % LINE_COUNT;
    caches.read(End::Consumer, Line::Items(items[0]));
    if number * batch % CAPACITY < batch {
        caches.read(End::Producer, Line::Index("given back"));
    }
    caches.write_all(End::Producer, &items);
    caches.write(End::Producer, Line::Items(next));
    caches.write(End::Producer, Line::Index("pushed"));
    caches.read_all(End::Consumer, &items);
    if number * batch % (CAPACITY / 8) < batch {
        caches.write(End::Consumer, Line::Index("given back"));
    }
}

/// The producer reads the consumer's index for each batch.
fn rte_ring(number: usize, batch: usize, caches: &mut Caches) {
    indices(number, batch, true, caches);
}

/// rtrb and ringbuf: the producer reads the consumer's index only if the last one it knows leaves
/// no room.
fn late_indices(number: usize, batch: usize, caches: &mut Caches) {
    indices(number, batch, number * batch % CAPACITY < batch, caches);
}

/// A ring with an index for each end; the consumer reads the producer's for each batch.
fn indices(number: usize, batch: usize, looks_for_room: bool, caches: &mut Caches) {
    let items = lines(number * batch, batch, LINE_ITEMS, CAPACITY / LINE_ITEMS);
    caches.read(End::Consumer, Line::Index("producer"));
    if looks_for_room {
        caches.read(End::Producer, Line::Index("consumer"));
    }
    caches.write_all(End::Producer, &items);
    caches.write(End::Producer, Line::Index("producer"));
    caches.read(End::Consumer, Line::Index("producer"));
    caches.read_all(End::Consumer, &items);
    caches.write(End::Consumer, Line::Index("consumer"));
}

/// ArrayQueue: a stamp beside each item, which both ends read and write.
fn stamps(number: usize, batch: usize, caches: &mut Caches) {
    let items = lines(number * batch, batch, LINE_ITEMS / 2, CAPACITY / LINE_ITEMS * 2);
    caches.read(End::Consumer, Line::Items(items[0]));
    caches.read(End::Consumer, Line::Index("producer"));
    caches.write_all(End::Producer, &items);
    caches.write(End::Producer, Line::Index("producer"));
    caches.write_all(End::Consumer, &items);
    caches.write(End::Consumer, Line::Index("consumer"));
}
