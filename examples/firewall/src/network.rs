//! The whole network function, from the queues of two ports to the queues of two ports.

use crate::firewall::Firewall;
use crate::side::Side;
use hotloop::packet::seed::Seed;
use hotloop::prelude::*;

/// The graph. Both directions of a connection, its fragments and the errors about it meet on the core that
/// their two addresses select. `receive` and `send` return the queues of the inside first, and `make`
/// the firewall of a core.
pub fn network<S, Z, E>(
    receive: impl Fn(&Core) -> Result<[S; 2], E> + Sync,
    send: impl Fn(&Core) -> Result<[Z; 2], E> + Sync,
    make: impl Fn(&Core) -> hotloop::Result<Firewall> + Sync,
    seed: Seed,
) -> impl Graph
where
    S: Source<Item: PacketBuf + Send>,
    Z: Sink<Item = S::Item>,
    E: Into<hotloop::Error>,
{
    source(move |core| receive(core).map(sources))
        .stage(move |_| Classify::outermost().with_seed(seed))
        .shard_by(|packet: &Classified<S::Item>| packet.shard())
        .try_burst_stage(make)
        .named("firewall")
        .sink(move |core| {
            send(core).map(|[inside, outside]| {
                outlets([(Side::Inside, inside), (Side::Outside, outside)])
            })
        })
}
