//! The network between two nodes: late, slow, cut, or gone.

use super::node::{Node, name};
use hotloop::testing::Rng;
use hotloop_cluster::sync::wire::{FRAME_BYTES_MAX, Message, decode};
use hotloop_cluster::sync::{PeerId, SessionId};
use std::collections::VecDeque;

/// Maximum number of messages under way in one direction.
const UNDER_WAY_MAX: usize = 8;

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    under_way: VecDeque<(u64, Vec<u8>)>,
    arrived: Vec<u8>,
    /// The session of the node that reads this direction.
    session: Option<SessionId>,
}

/// A connection between the two nodes of a link.
struct Connection {
    /// To the first and to the second node.
    directions: [Direction; 2],
}

/// Two nodes and the network between them.
pub struct Link {
    /// The numbers of the two nodes; the first connects.
    pub nodes: [usize; 2],
    names: [String; 2],
    pub delay_ms: u64,
    pub is_parted: bool,
    /// Number of frames carried, and their bytes.
    pub frame_count: u64,
    pub frame_bytes: u64,
    /// Whether neither node reads, though they are connected.
    pub is_stalled: bool,
    connection: Option<Connection>,
    retry_ms: u64,
    /// Its own generator: the order of a node's simultaneous messages does not depend on the seed.
    rng: Rng,
}

impl Link {
    pub fn new(nodes: [usize; 2], rng: Rng) -> Self {
        Self {
            nodes,
            names: nodes.map(name),
            delay_ms: 1,
            is_parted: false,
            frame_count: 0,
            frame_bytes: 0,
            is_stalled: false,
            connection: None,
            retry_ms: 0,
            rng,
        }
    }

    pub const fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Cuts the connection; both nodes notice.
    pub fn cut(&mut self, nodes: &mut [Option<Node>], now_ms: u64) {
        self.retry_ms = now_ms + 100;
        let Some(connection) = self.connection.take() else { return };
        for (side, direction) in connection.directions.iter().enumerate() {
            if let (Some(session), Some(node)) = (direction.session, &mut nodes[self.nodes[side]]) {
                node.peers.end(session, "cut", node.clock.now_ms());
                node.has_input = true;
            }
        }
    }

    /// Carries the available bytes.
    pub fn turn(&mut self, nodes: &mut [Option<Node>], now_ms: u64) {
        let are_up = self.nodes.iter().all(|&node| nodes[node].is_some());
        if !are_up || self.is_parted {
            self.cut(nodes, now_ms);
            return;
        }
        if self.connection.is_none() && now_ms >= self.retry_ms {
            let mut connection = Connection { directions: Default::default() };
            let mut hello = Vec::new();
            nodes[self.nodes[0]].as_ref().expect("it is up").peers.hello(&mut hello);
            connection.directions[1].under_way.push_back((now_ms + self.delay_ms, hello));
            self.connection = Some(connection);
        }
        if self.is_stalled {
            return;
        }
        for side in [0, 1] {
            if self.carry(side, nodes, now_ms).is_none() {
                self.cut(nodes, now_ms);
            }
        }
    }

    /// Carries bytes to one of the nodes. `None` if the session is over.
    fn carry(&mut self, side: usize, nodes: &mut [Option<Node>], now_ms: u64) -> Option<()> {
        let rng = &mut self.rng;
        let Some(Connection { directions }) = &mut self.connection else { return Some(()) };
        let peer_of = |nodes: &[Option<Node>], side: usize| -> PeerId {
            let node = nodes[self.nodes[side]].as_ref().expect("it is up");
            node.peers.named(&self.names[1 - side]).expect("it is a peer")
        };
        // The other node's output.
        if directions[1 - side].session.is_some()
            && directions[side].under_way.len() < UNDER_WAY_MAX
        {
            let from = peer_of(nodes, 1 - side);
            let node = nodes[self.nodes[1 - side]].as_mut()?;
            let mut out = Vec::new();
            node.peers.output(from, &mut out, 1 + rng.index(4000), node.clock.now_ms());
            if !out.is_empty() {
                let last_ms = directions[side].under_way.back().map_or(0, |it| it.0);
                let at_ms = (now_ms + rng.below(2 * self.delay_ms + 1)).max(last_ms);
                directions[side].under_way.push_back((at_ms, out));
            }
        }
        while let Some((_, bytes)) = directions[side].under_way.pop_front_if(|it| it.0 <= now_ms) {
            directions[side].arrived.extend(bytes);
        }
        let peer = peer_of(nodes, side);
        let node = nodes[self.nodes[side]].as_mut()?;
        let mut used = 0;
        let mut answer = None;
        while let Ok(Some((frame, bytes))) =
            decode(&directions[side].arrived[used..], FRAME_BYTES_MAX)
        {
            match (&frame.message, directions[side].session) {
                (Message::Hello(hello), None) => {
                    let expected = (side == 0).then_some(peer);
                    directions[side].session =
                        Some(node.peers.greet(hello, expected, node.clock.now_ms()).ok()?);
                    if side == 1 {
                        let mut hello = Vec::new();
                        node.peers.hello(&mut hello);
                        answer = Some(hello);
                    }
                }
                (_, Some(session)) if node.peers.is_current(session) => {
                    if !node.peers.can_receive(peer) {
                        break;
                    }
                    node.has_input = true;
                    let done = node.peers.input(peer, &frame, node.clock.now_ms());
                    done.unwrap_or_else(|error| panic!("a node broke the protocol: {error}"));
                }
                _ => return None,
            }
            used += bytes;
            self.frame_count += 1;
            self.frame_bytes += bytes as u64;
        }
        directions[side].arrived.drain(..used);
        if let Some(hello) = answer {
            directions[0].under_way.push_back((now_ms + self.delay_ms, hello));
        }
        Some(())
    }
}
