//! The network function: it knows sources and sinks, not DPDK.

use hotloop::engine::Graph;
use hotloop::prelude::*;

/// Forwards packets unchanged.
pub fn io<S, Z, E>(
    receive: impl Fn(&Core) -> Result<S, E> + Sync,
    send: impl Fn(&Core) -> Result<Z, E> + Sync,
) -> impl Graph
where
    S: Source<Item: Carries>,
    Z: Sink<Item = S::Item>,
    E: Into<hotloop::Error>,
{
    source(receive).sink(send)
}

/// Forwards packets with their Ethernet addresses swapped.
pub fn mac_swap<S, Z, E>(
    receive: impl Fn(&Core) -> Result<S, E> + Sync,
    send: impl Fn(&Core) -> Result<Z, E> + Sync,
) -> impl Graph
where
    S: Source<Item: PacketBuf>,
    Z: Sink<Item = S::Item>,
    E: Into<hotloop::Error>,
{
    source(receive)
        .stage(|_| {
            each(|mut packet: S::Item| {
                ethernet::swap_addresses(&mut packet);
                packet
            })
        })
        .named("macswap")
        .sink(send)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::testing::MemoryPort;

    /// The frames that leave port B when these frames arrive at port A.
    fn forwarded(frames: &[Vec<u8>], swap: bool) -> Vec<Vec<u8>> {
        let (a, b) = (MemoryPort::new("a"), MemoryPort::new("b"));
        a.feed(0, frames.iter().cloned());
        a.end_input();
        let (receive, send) = (|core: &Core| a.rx_queue(core), |core: &Core| b.tx_queue(core));
        let deployment = Deployment::run_to_completion(1);
        let report = if swap {
            run(Engine::plan(mac_swap(receive, send), deployment).unwrap())
        } else {
            run(Engine::plan(io(receive, send), deployment).unwrap())
        };
        assert_eq!(report.sent, frames.len() as u64);
        b.take_sent(0).into_iter().map(|frame| frame.bytes).collect()
    }

    fn run(plan: hotloop::engine::Plan<impl Graph>) -> Report {
        plan.run(|control| {
            control.wait_until_finished();
        })
        .unwrap()
    }

    #[test]
    fn packets_go_on_as_they_are_or_swapped() {
        let frames: Vec<_> = (0..200).map(|index| udp().payload(vec![7; index]).build()).collect();
        assert_eq!(forwarded(&frames, false), frames);
        let swapped = frames.iter().map(|frame| {
            let mut frame = frame.clone();
            frame[..12].rotate_left(6);
            frame
        });
        assert_eq!(forwarded(&frames, true), swapped.collect::<Vec<_>>());
    }
}
