//! The type of a graph grows by a constant with each step, and with it the symbols of a program.

mod common;

use common::{Parcel, World};
use hotloop_engine::{Chain, source};
use hotloop_stage::{Error, each};
use std::any::type_name;

fn length<C: Chain>(_: &C) -> usize {
    type_name::<C>().len()
}

#[test]
fn each_step_adds_as_much_to_a_chains_type_as_the_one_before() {
    let world = World::new();
    let start = source(|core| Ok::<_, Error>(world.rx(core, 0)));
    let mut lengths = vec![length(&start)];
    let one = start.stage(|_| each(|parcel: Parcel| parcel));
    lengths.push(length(&one));
    let two = one.stage(|_| each(|parcel: Parcel| parcel));
    lengths.push(length(&two));
    let three = two.stage(|_| each(|parcel: Parcel| parcel));
    lengths.push(length(&three));
    let four = three.stage(|_| each(|parcel: Parcel| parcel));
    lengths.push(length(&four));
    let steps: Vec<_> = lengths.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(steps.iter().all(|step| *step == steps[0]), "{steps:?}");
}
