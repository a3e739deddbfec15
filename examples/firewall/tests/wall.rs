//! A firewall on the bench, between frames of both sides.

use firewall::firewall::Firewall;
use firewall::rules::Rules;
use firewall::side::Side;
use hotloop::packet::memory::MemPacket;
use hotloop::prelude::*;
use hotloop::testing::Bench;
use std::sync::Arc;
use std::time::Duration;

pub const RULES: &str = r#"
[[rule]]
name = "web"
from = "inside"
protocol = "tcp"
destination-ports = ["80", "443"]
action = "allow"
[[rule]]
name = "dns"
from = "inside"
protocol = "udp"
destination-ports = ["53"]
action = "allow"
[[rule]]
name = "ping"
from = "inside"
protocol = "icmp"
action = "allow"
[[rule]]
name = "ping6"
from = "inside"
protocol = "icmpv6"
action = "allow"
[[rule]]
name = "ssh"
from = "outside"
destination = ["10.0.0.5", "2001:db8::5"]
protocol = "tcp"
destination-ports = ["22"]
action = "allow"
[[rule]]
name = "telnet"
from = "outside"
protocol = "tcp"
destination-ports = ["23"]
action = "reject"
[[rule]]
name = "snmp"
from = "outside"
protocol = "udp"
destination-ports = ["161"]
action = "reject"
[[rule]]
name = "smtp"
from = "inside"
protocol = "tcp"
destination-ports = ["25"]
action = "drop"
"#;

/// What became of a frame: `passed`, unchanged and to the other side, or the reason of its drop.
pub type Fate = &'static str;

pub struct Wall {
    bench: Bench<Firewall>,
    pub publisher: Publisher<Rules>,
    /// The last answer, and the side that it went to.
    pub answer: Option<(Side, Vec<u8>)>,
}

/// The port of the inside.
pub const INSIDE: PortId = PortId::new(0);

impl Wall {
    pub fn new(rules: &str) -> Self {
        Self::with_room(rules, 10_000)
    }

    /// For this many connections.
    pub fn with_room(rules: &str, connections_max: usize) -> Self {
        let rules = Arc::new(Rules::parse(rules, 1).unwrap());
        let (publisher, subscribers) = publish(rules);
        let (_, mailboxes) = mailbox(1);
        let core = Core::new(0, 1);
        let lister = Lister::new(mailboxes.open(&core).unwrap());
        let firewall =
            Firewall::new(&core, INSIDE, connections_max, subscribers.subscribe(), lister).unwrap();
        Self { bench: bench_burst(firewall), publisher, answer: None }
    }

    /// Lets seconds pass.
    pub fn wait(&mut self, seconds: u64) {
        self.bench.advance(Duration::from_secs(seconds));
    }

    pub fn tick(&mut self) {
        self.bench.tick::<Classified<MemPacket>>();
    }

    pub fn feed(&mut self, side: Side, frame: impl Into<Vec<u8>>) -> Fate {
        let frame = frame.into();
        let packet = MemPacket::new(&frame).with_ingress(PortId::new(side as u16));
        let items = bench(Classify::outermost().seeded(0)).feed_items([packet]).into_packets();
        let out = self.bench.feed_items(items);
        if let Some((reason, _)) = out.drops().first() {
            self.answer = out.packets().first().map(|it| (it.route, it.packet.data().to_vec()));
            return reason;
        }
        let sent = &out.packets()[0];
        assert_eq!((sent.packet.data(), sent.route), (&frame[..], side.other()));
        "passed"
    }

    pub fn inside(&mut self, frame: impl Into<Vec<u8>>) -> Fate {
        self.feed(Side::Inside, frame)
    }

    pub fn outside(&mut self, frame: impl Into<Vec<u8>>) -> Fate {
        self.feed(Side::Outside, frame)
    }
}
