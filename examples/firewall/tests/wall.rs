//! A firewall on the bench, between frames of both sides.

use firewall::firewall::Firewall;
use firewall::packet::Side;
use firewall::rules::Rules;
use hotloop::packet::memory::MemPacket;
use hotloop::prelude::*;
use hotloop::stage::Counter;
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

/// The rules of a file's text, for eight cores.
pub fn rules_of(text: &str) -> Rules {
    Rules::parse(text, Deployment::run_to_completion(8), &Rules::default()).unwrap()
}

/// The firewall of a core, with room for this number of connections. Nobody lists them.
pub fn firewall(core: &Core, connections_max: usize, rules: &Subscribers<Rules>) -> Firewall {
    let (_, mailboxes) = mailbox(1);
    let lister = Lister::new(mailboxes.open(core).unwrap());
    Firewall::new(core, INSIDE, connections_max, rules.subscribe(), lister).unwrap()
}

/// The fate of a frame: `passed`, unchanged and to the other side, or the reason of its drop.
pub type Fate = &'static str;

pub struct Wall {
    bench: Bench<Firewall>,
    connections: Arc<Counter>,
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
        let (publisher, subscribers) = publish(Arc::new(rules_of(rules)));
        let firewall = firewall(&Core::new(0, 1), connections_max, &subscribers);
        let gauges = BurstStage::<Classified<MemPacket>>::gauges(&firewall);
        let connections = Arc::clone(&gauges[0].counter);
        Self { bench: bench_burst(firewall), connections, publisher, answer: None }
    }

    /// Lets seconds pass.
    pub fn wait(&mut self, seconds: u64) {
        self.bench.advance(Duration::from_secs(seconds));
    }

    pub fn tick(&mut self) {
        self.bench.tick::<Classified<MemPacket>>();
    }

    /// Number of connections at the last turn.
    pub fn connection_count(&self) -> u64 {
        self.connections.count()
    }

    pub fn feed(&mut self, side: Side, frame: impl Into<Vec<u8>>) -> Fate {
        let frame = frame.into();
        let packet = MemPacket::new(&frame).with_ingress(PortId::new(side as u16));
        let items = bench(Classify::outermost().seeded(0)).feed_items([packet]).into_packets();
        let out = self.bench.feed_items(items);
        if let Some((reason, _)) = out.drops().first() {
            assert!(out.packets().len() <= usize::from(*reason == "rejected"));
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
