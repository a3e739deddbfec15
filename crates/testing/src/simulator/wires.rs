//! Arrivals at the ports, drawn from the seed, and the peers' answers.

use crate::simulator::{Scenario, World};
use crate::{Frame, MemoryPort, Rng};
use std::collections::VecDeque;

/// Maximum number of frames that arrive at once: more than a burst.
const ARRIVAL_COUNT_MAX: u64 = 100;

/// The other ends of all ports.
pub struct Wires<'a, S, P> {
    scenario: &'a S,
    wires: Vec<Wire<'a, P>>,
    frames_left: u64,
    answers_left: u64,
    answered_count: u64,
    fed_count: u64,
    has_ended: bool,
}

/// The other end of a port.
struct Wire<'a, P> {
    port: &'a MemoryPort,
    /// Whether the scenario's frames arrive here, besides answers.
    is_fed: bool,
    peer: Option<P>,
    /// For each claimed RX queue, in order.
    inputs: Vec<Input>,
    /// The frames that each TX queue sent.
    sent: Vec<Vec<Frame>>,
}

/// The other end of an RX queue.
struct Input {
    queue_index: usize,
    /// The number of the next frame.
    number: u64,
    /// Answers that have not arrived yet.
    answers: VecDeque<Frame>,
}

impl<'a, S: Scenario, P: FnMut(&Frame, &mut Rng) -> Vec<Frame>> Wires<'a, S, P> {
    /// The other ends of the world's ports; the network function has claimed their queues.
    pub fn new(scenario: &'a S, world: &'a World, peer: impl Fn(usize) -> Option<P>) -> Self {
        let wire = |(port_index, port): (usize, &'a MemoryPort)| {
            let input = |queue_index| Input { queue_index, number: 0, answers: VecDeque::new() };
            Wire {
                port,
                is_fed: scenario.is_fed(port_index),
                peer: peer(port_index),
                inputs: port.rx_queue_indexes().into_iter().map(input).collect(),
                sent: vec![Vec::new(); port.tx_queue_count()],
            }
        };
        Self {
            scenario,
            wires: world.memory().enumerate().map(wire).collect(),
            frames_left: world.settings().frame_count,
            answers_left: world.settings().answer_count_max,
            answered_count: 0,
            fed_count: 0,
            has_ended: false,
        }
    }

    /// Lets answers and frames arrive at one RX queue. Returns false if none are left.
    pub fn arrive(&mut self, rng: &mut Rng) -> bool {
        let mut ready = Vec::new();
        for (port_index, wire) in self.wires.iter_mut().enumerate() {
            let frames_left = if wire.is_fed { self.frames_left } else { 0 };
            for input in &mut wire.inputs {
                if frames_left > 0 || !input.answers.is_empty() {
                    ready.push((port_index, wire.port, frames_left, input));
                }
            }
        }
        if ready.is_empty() {
            return false;
        }
        let count = 1 + rng.below(ARRIVAL_COUNT_MAX);
        let (port_index, port, frames_left, input) = ready.swap_remove(rng.index(ready.len()));
        let queue_index = input.queue_index;
        let answer_count = input.answers.len().min(count as usize);
        port.feed(queue_index, input.answers.drain(..answer_count));
        let frame_count = frames_left.min(count - answer_count as u64);
        let numbers = input.number..input.number + frame_count;
        let frame = |number| self.scenario.frame(port_index, queue_index, number, rng);
        port.feed(queue_index, numbers.map(frame));
        input.number += frame_count;
        self.frames_left -= frame_count;
        self.answered_count += answer_count as u64;
        self.fed_count += frame_count + answer_count as u64;
        true
    }

    /// Takes the frames that the ports have sent since the last call, and lets their peers answer.
    pub fn answer(&mut self, rng: &mut Rng) {
        for wire in self.wires.iter_mut().filter(|wire| wire.peer.is_some()) {
            wire.answer(&mut self.answers_left, rng);
        }
    }

    /// Ends the input.
    pub fn end_input(&mut self) {
        self.wires.iter().for_each(|wire| wire.port.end_input());
        self.has_ended = true;
    }

    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub fn has_peers(&self) -> bool {
        self.wires.iter().any(|wire| wire.peer.is_some())
    }

    /// The number of frames that have arrived, and of the answers among them.
    pub const fn arrived_counts(&self) -> [u64; 2] {
        [self.fed_count, self.answered_count]
    }

    /// All frames that each TX queue of each port sent.
    pub fn into_sent(self) -> Vec<Vec<Vec<Frame>>> {
        self.wires.into_iter().map(Wire::into_sent).collect()
    }
}

impl<P: FnMut(&Frame, &mut Rng) -> Vec<Frame>> Wire<'_, P> {
    fn answer(&mut self, answers_left: &mut u64, rng: &mut Rng) {
        let Some(peer) = &mut self.peer else { return };
        let input_count = self.inputs.len().max(1);
        for (queue_index, sent) in self.sent.iter_mut().enumerate() {
            let from = sent.len();
            sent.extend(self.port.take_sent(queue_index));
            // The answers of one queue keep their order.
            let mut input = self.inputs.get_mut(queue_index % input_count);
            for answer in sent[from..].iter().flat_map(|frame| peer(frame, rng)) {
                if let Some(input) = &mut input
                    && *answers_left > 0
                {
                    input.answers.push_back(answer);
                    *answers_left -= 1;
                }
            }
        }
    }

    fn into_sent(mut self) -> Vec<Vec<Frame>> {
        for (queue_index, sent) in self.sent.iter_mut().enumerate() {
            sent.extend(self.port.take_sent(queue_index));
        }
        self.sent
    }
}
