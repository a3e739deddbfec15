//! The type of a graph grows by a constant with each step, and so do the symbols of a program and
//! its size.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use hotloop_engine::{Chain, Deployment, Engine, Fork, Graph, source};
use hotloop_stage::{Burst, Carries, Cx, Error, NoDrops, Sink, Source, Stage, Verdict};
use hotloop_test_tools::tool;
use std::marker::PhantomData;

/// The longest symbol of a graph of 16 stages, 4 boundaries and 4 exits, in bytes.
const SYMBOL_BYTES_MAX: usize = 4096;

/// Maximum size of this program, which has four graphs of different numbers of steps, in bytes.
const PROGRAM_BYTES_MAX: u64 = 40 << 20;

/// Packets that a graph runs.
const COUNT: usize = 1000;

/// The packets of a graph. Its number of blocks is in the name, and so in the graph's symbols.
macro_rules! packets {
    ($($name:ident)*) => { $(
        #[derive(Default)]
        struct $name;

        impl Carries for $name {
            fn bytes(&self) -> &[u8] {
                &[]
            }
        }
    )* };
}
packets! { P1 P2 P3 P4 }

/// Makes packets.
struct Make<P>(usize, PhantomData<P>);

impl<P: Carries + Default> Source for Make<P> {
    type Item = P;

    fn poll(&mut self, burst: &mut Burst<P>) -> usize {
        let count = self.0.min(burst.room());
        (0..count).for_each(|_| burst.push(P::default()));
        self.0 -= count;
        count
    }

    fn lossless(&self) -> bool {
        true
    }

    fn finished(&self) -> bool {
        self.0 == 0
    }
}

/// Takes packets.
struct Take<P>(PhantomData<P>);

impl<P: Carries> Sink for Take<P> {
    type Item = P;

    fn send(&mut self, burst: &mut Burst<P>) -> usize {
        let count = burst.len();
        burst.clear();
        count
    }
}

fn start<P: Carries + Default>() -> impl Chain<Out = P> {
    source(|_| Ok::<_, Error>(Make(COUNT, PhantomData)))
}

/// A stage that changes nothing.
struct Pass;

impl<P> Stage<P> for Pass {
    type Out = P;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, packet: P) -> Verdict<P> {
        Ok(packet)
    }
}

/// A stage before an exit that no packet leaves by.
struct Part;

impl<P> Stage<P> for Part {
    type Out = Fork<P, P>;
    type Drop = NoDrops;

    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, packet: P) -> Verdict<Fork<P, P>> {
        Ok(Fork::On(packet))
    }
}

/// A chain with four more stages, an exit and a boundary.
macro_rules! block {
    ($chain:expr, $packet:ty) => {
        $chain
            .stage(|_| Pass)
            .stage(|_| Pass)
            .stage(|_| Pass)
            .stage(|_| Part)
            .exit(|_| Ok::<_, Error>(Take(PhantomData)))
            .shard_by(|_: &$packet| 0_u32)
    };
}

/// Runs a graph of this chain.
macro_rules! run {
    ($chain:expr) => {
        run($chain.sink(|_| Ok::<_, Error>(Take(PhantomData))))
    };
}

fn run(graph: impl Graph) {
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
    let report = plan.run(|control| control.wait_until_finished()).unwrap();
    assert_eq!((report.received, report.sent), (COUNT as u64, COUNT as u64));
}

/// The length in bytes of the longest symbol that contains this name.
fn longest(symbols: &str, name: &str) -> usize {
    let symbols =
        symbols.lines().filter_map(|line| line.rsplit_once(' ')).map(|(_, symbol)| symbol);
    symbols.filter(|symbol| symbol.contains(name)).map(str::len).max().unwrap_or(0)
}

fn graph_1() {
    run!(block!(start(), P1));
}

fn graph_2() {
    run!(block!(block!(start(), P2), P2));
}

fn graph_3() {
    run!(block!(block!(block!(start(), P3), P3), P3));
}

fn graph_4() {
    let three = block!(block!(block!(start(), P4), P4), P4);
    run!(block!(three, P4));
}

#[test]
fn each_step_adds_as_much_to_a_programs_symbols_as_the_one_before() {
    graph_1();
    graph_2();
    graph_3();
    graph_4();

    let program = std::env::current_exe().unwrap();
    let program_bytes = program.metadata().unwrap().len();
    println!("the program: {program_bytes} bytes");
    assert!(program_bytes <= PROGRAM_BYTES_MAX);
    let mut command = match tool("objdump") {
        Ok(command) => command,
        Err(why) => return println!("skipped: {why}"),
    };
    let output = command.args(["--syms", "--wide"]).arg(&program).output().unwrap();
    let symbols = String::from_utf8(output.stdout).unwrap();
    let names = ["P1", "P2", "P3", "P4"];
    let lengths = names.map(|name| longest(&symbols, name));
    println!("the longest symbols of 1 to 4 blocks: {lengths:?} bytes");
    assert!(lengths[3] <= SYMBOL_BYTES_MAX, "{lengths:?}");
    let steps: Vec<_> = lengths.windows(2).map(|pair| pair[1].abs_diff(pair[0])).collect();
    assert!(steps[2] <= steps[1] + steps[1] / 8, "{lengths:?}");
}
