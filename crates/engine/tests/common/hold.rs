//! A stage that holds packets.

use super::Parcel;
use hotloop_stage::{Burst, BurstStage, Cx, NoDrops, Output};
use std::collections::VecDeque;

/// Keeps the last `count_max` packets until the end.
pub struct Hold {
    count_max: usize,
    parcels: VecDeque<Parcel>,
}

impl Hold {
    /// Holds `count_max` packets.
    pub fn of(count_max: usize) -> Self {
        Self { count_max, parcels: VecDeque::new() }
    }
}

impl BurstStage<Parcel> for Hold {
    type Out = Parcel;
    type Drop = NoDrops;

    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<Parcel>,
        out: &mut Output<'_, Parcel>,
    ) {
        while let Some(parcel) = input.pop() {
            self.parcels.push_back(parcel);
            if self.parcels.len() > self.count_max {
                out.push(self.parcels.pop_front().expect("one more than are held"));
            }
        }
    }

    fn finish(&mut self, _: &mut Cx<'_, NoDrops>, out: &mut Output<'_, Parcel>) {
        self.parcels.drain(..).for_each(|parcel| out.push(parcel));
    }

    fn held(&self) -> usize {
        self.parcels.len()
    }

    fn held_max(&self) -> usize {
        self.count_max
    }
}
