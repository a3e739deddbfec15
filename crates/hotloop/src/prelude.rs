//! The names that most network functions need: `use hotloop::prelude::*`.

pub use hotloop_arena::Arena;
pub use hotloop_engine::{
    Asker, Chain, Control, CoreCounters, Deployment, Engine, Fork, Graph, Idle, Lister, Mailbox,
    Mailboxes, Publisher, Report, Routed, Subscriber, Subscribers, Waited, mailbox, outlets,
    publish, source, sources,
};
pub use hotloop_flow::{Handle, Hint, Table};
pub use hotloop_packet::classify::Depth;
pub use hotloop_packet::flow_key::FlowKey;
pub use hotloop_packet::{PacketBuf, PortId, ethernet, ipip, nat};
pub use hotloop_stage::{
    BURST_CAPACITY, Burst, BurstStage, Carries, Classified, Classify, Core, Cx, Instant, Limits,
    NoDrops, Output, Sink, Source, Stage, Tagged, Verdict, drop_reasons, each,
};

#[cfg(feature = "dpdk")]
pub use hotloop_dpdk::{Eal, Mbuf, Port};

/// A packet, in the type that ports receive and send.
#[cfg(feature = "dpdk")]
pub type Packet = Mbuf;

#[cfg(feature = "testing")]
pub use hotloop_packet::build::udp;
#[cfg(feature = "testing")]
pub use hotloop_testing::{bench, bench_burst};
