//! How many instructions a hit takes, counted by callgrind.

use crate::bed::{Bed, Setup};
use hotloop_benches::traffic::Sizes;

const FLOW_COUNT: u32 = 1_000;

/// What is counted.
const BALANCER: &str = "balancer";
const HELLO: &str = "hello-forward";

/// The other side of [`bench`]: works on so many packets.
pub fn play(case: &str, packet_count: &str) -> Result<(), String> {
    let packet_count = packet_count.parse().map_err(|_| "not a number of packets")?;
    let mut bed = match case {
        BALANCER => Bed::balancer(&Setup::hits(10, FLOW_COUNT))?,
        HELLO => Bed::hello_forward(FLOW_COUNT, Sizes::Small)?,
        _ => return Err(format!("no case {case}")),
    };
    bed.play(packet_count);
    bed.finish()
}
