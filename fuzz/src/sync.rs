//! Messages between nodes: frames of arbitrary bytes, from an accepted peer and from strangers.

use hotloop_agreement::Birth;
use hotloop_balancer::connection::State;
use hotloop_balancer::exceptions::Record;
use hotloop_cluster::sync::wire::{
    FRAME_BYTES_MAX, Frame, GREETING_BYTES_MAX, Hello, Message, VERSION, decode,
};
use hotloop_cluster::sync::{Local, PeerId, Peers, Reference};
use hotloop_packet::flow_key::{FlowKey, FlowKeyV4};
use std::net::Ipv4Addr;

const DIGEST: [u8; 16] = [7; 16];

/// The length at the beginning of a frame, and the fields up to its body: kind, revision and
/// sequence number.
const LENGTH_BYTES: usize = 4;
const HEADER_BYTES: usize = 1 + 8 + 8;

/// Maximum number of a peer's changes that wait to be entered, including the frame that exceeds the
/// limit, and its latest claims, which are sent on when it goes.
const IMPORTS_MAX: usize = (1 << 15) + FRAME_BYTES_MAX / 30 + (1 << 16);

/// A node called `b`, and its peers `a` and `c`.
struct Node {
    peers: Peers,
    /// The peer that sends the frames.
    sender: PeerId,
    next_sequence: u64,
    now_ms: u64,
}

/// Plays the bytes as a script, to a node with an empty state.
///
/// Bytes that are not a frame end their sender's session, and have no other effect; a frame must be
/// the same bytes when encoded again. However much a peer sends, no more changes wait than there is
/// room for.
pub fn run(bytes: &[u8]) {
    let mut node = Node::new();
    let mut bytes = bytes;
    while let Some((&step, rest)) = bytes.split_first() {
        bytes = node.step(step, rest);
        node.check();
    }
}

impl Node {
    fn new() -> Self {
        let local = Local { node: "b".into(), digest: DIGEST };
        let named = ["a", "c"].map(|name| (name.to_owned(), format!("{name}:1")));
        let peers = Peers::new(local, named);
        let sender = peers.named("a").expect("a peer");
        let mut out = Vec::new();
        peers.hello(&mut out);
        let (frame, taken) =
            decode(&out, GREETING_BYTES_MAX).expect("a greeting").expect("all of it");
        assert!(taken == out.len() && matches!(frame.message, Message::Hello(_)));
        let mut node = Self { peers, sender, next_sequence: 1, now_ms: 0 };
        node.greet(0);
        node
    }

    /// Plays a step, and returns the bytes after it.
    fn step<'a>(&mut self, step: u8, bytes: &'a [u8]) -> &'a [u8] {
        match step % 8 {
            // Frames, most of them in sequence.
            0..=3 => return self.frame(step, bytes),
            4 => {
                let mut imports = Vec::new();
                let _ = self.peers.take_imports(&mut imports, 1 << (step >> 4));
                assert!(imports.len() <= 1 << (step >> 4));
            }
            5 => self.own(step),
            6 => self.walk(step),
            _ => self.greet(step),
        }
        self.now_ms += u64::from(step);
        bytes
    }

    /// Receives bytes from a stranger, or from a peer.
    fn frame<'a>(&mut self, step: u8, bytes: &'a [u8]) -> &'a [u8] {
        if step & 2 != 0 {
            let _ = decode(bytes, GREETING_BYTES_MAX);
        }
        let count = bytes.len().min(HEADER_BYTES + usize::from(step >> 3) * 16);
        let (body, rest) = bytes.split_at(count);
        let length = u32::try_from(body.len()).expect("a few hundred bytes");
        let mut framed = [&length.to_be_bytes()[..], body].concat();
        if step & 1 == 0 && body.len() >= HEADER_BYTES {
            framed[LENGTH_BYTES + 9..][..8].copy_from_slice(&self.next_sequence.to_be_bytes());
        }
        match decode(&framed, FRAME_BYTES_MAX) {
            Ok(Some((frame, taken))) => {
                // Of a later version, only a part is read.
                let is_later = match &frame.message {
                    Message::Hello(hello) => hello.version != VERSION,
                    Message::State(_) | Message::Unknown => true,
                    _ => false,
                };
                if !is_later {
                    let mut again = Vec::new();
                    frame.encode(&mut again);
                    assert_eq!((taken, &again[..]), (framed.len(), &framed[..]));
                }
                self.input(&frame);
            }
            Ok(None) => assert!(body.len() < HEADER_BYTES, "a whole frame is missing"),
            Err(_) => self.greet(step),
        }
        rest
    }

    fn input(&mut self, frame: &Frame<'_>) {
        let (sender, next) = (self.sender, self.next_sequence);
        if !self.peers.can_receive(sender) {
            return;
        }
        match self.peers.input(sender, frame, self.now_ms) {
            Ok(()) => {
                self.next_sequence +=
                    u64::from(frame.sequence == next && is_counted(&frame.message))
            }
            Err(why) => {
                assert!(!why.chars().any(char::is_control), "{why:?}");
                self.greet(0);
            }
        }
    }

    /// The peer connects again.
    fn greet(&mut self, step: u8) {
        let (node, expected) =
            if step & 16 == 0 { ("a", None) } else { ("c", self.peers.named("c")) };
        let hello = Hello { version: VERSION, node: node.to_owned(), digest: DIGEST };
        let session = self.peers.greet(&hello, expected, self.now_ms).expect("a peer");
        (self.sender, self.next_sequence) = (session.peer, 1);
    }

    /// This node announces a change of its own connections, or has other reference tables.
    fn own(&mut self, step: u8) {
        let client = Ipv4Addr::new(198, 51, 100, step >> 5);
        let key = FlowKey::V4(FlowKeyV4::new(client, Ipv4Addr::new(203, 0, 113, 10), 1, 80, 6));
        let backend = Ipv4Addr::new(10, 0, 0, 1 + (step >> 7)).into();
        let (state, birth) = (State::Established, Birth::new(u64::from(step >> 3)));
        let record = Record { key, backend, state, birth, left_ms: 60_000 };
        match step & 16 {
            0 => self.peers.offer(&[record; 2][..1 + usize::from(step >> 7)], self.now_ms),
            _ => {
                let number = u32::from(step >> 5);
                self.peers.set_references(vec![Reference::new(number, "x".repeat(40_000))]);
            }
        }
    }

    fn walk(&mut self, step: u8) {
        if let Some(walk) = self.peers.snapshot_wanted(self.now_ms) {
            self.peers.give_page(walk, &[], step & 16 == 0, self.now_ms);
        }
    }

    /// Checks that the node sends only frames.
    fn check(&mut self) {
        let waiting: usize =
            self.peers.status(self.now_ms).iter().map(|peer| peer.import_count).sum();
        assert!(waiting <= 2 * IMPORTS_MAX, "{waiting} changes wait");
        let mut out = Vec::new();
        self.peers.output(self.sender, &mut out, FRAME_BYTES_MAX, self.now_ms);
        let mut sent = &out[..];
        while let Some((_, taken)) = decode(sent, FRAME_BYTES_MAX).expect("frames of this node") {
            sent = &sent[taken..];
        }
        assert!(sent.is_empty(), "half a frame");
    }
}

/// Whether frames of this kind have sequence numbers.
const fn is_counted(message: &Message<'_>) -> bool {
    matches!(
        message,
        Message::SnapshotBegin | Message::SnapshotEnd | Message::Claims(_) | Message::Unknown
    )
}
