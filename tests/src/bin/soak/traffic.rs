//! The packets: connections that must survive, and attacks.

use hotloop::dpdk::{Mbuf, Mempool};
use hotloop::packet::build::{echo_request, tcp, too_big, udp};
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop::packet::{PacketBuf, ipv4};
use hotloop::stage::{Burst, Sink, Source};
use hotloop::testing::Rng;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of packets in a burst.
const BURST_LEN: usize = 32;

/// Number of connections that are opened first, and then have packets throughout.
const FLOWS: u64 = 20_000;

/// After this many packets everything that grows has grown: tables are full, pools are in use.
const WARM_PACKETS: u64 = 2_000_000;

/// The longest frame, and the room for answers and tunnels.
const FRAME_BYTES_MAX: usize = 1514;

/// Measurements of the run.
#[derive(Default)]
pub struct Gauges {
    pub made_count: AtomicU64,
    /// The longest time that the receiving core worked from one poll to the next, in CPU time.
    pub worst_burst_ns: AtomicU64,
}

impl Gauges {
    pub fn is_warm(&self) -> bool {
        self.made_count.load(Relaxed) > WARM_PACKETS
    }
}

/// The varying part of a template.
#[derive(Clone, Copy)]
enum Vary {
    /// The client's address and port, taken from one of the lasting connections.
    Lasting,
    /// The client's address and port, arbitrary.
    Anyone,
    /// The same, and the fragment's identification, arbitrary.
    Fragment,
    /// A few arbitrary bytes of the headers.
    Mutated,
    /// Nothing.
    Nothing,
}

struct Template {
    frame: Vec<u8>,
    vary: Vary,
    /// The template's share of packets, per thousand.
    permille: u64,
}

/// The source: packets of a mempool, each made from a template.
pub struct Traffic<'a> {
    mempool: Mempool,
    gauges: &'a Gauges,
    templates: Vec<Template>,
    /// The template of each of a thousand packets.
    mix: Vec<usize>,
    rng: Rng,
    made_count: u64,
    packets: u64,
    /// When the last burst was passed on, in CPU time.
    handed_ns: Option<u64>,
}

impl<'a> Traffic<'a> {
    pub fn new(mempool: Mempool, gauges: &'a Gauges, packets: u64) -> Self {
        let templates = templates();
        let mix: Vec<_> = templates
            .iter()
            .enumerate()
            .flat_map(|(index, template)| (0..template.permille).map(move |_| index))
            .collect();
        assert_eq!(mix.len(), 1000, "the shares add up");
        let rng = Rng::seeded(2026);
        let (made_count, handed_ns) = (0, None);
        Self { mempool, gauges, templates, mix, rng, made_count, packets, handed_ns }
    }

    fn write(&mut self, packet: &mut Mbuf) {
        let (template, number) = match self.made_count {
            made @ 0..FLOWS => (&self.templates[0], made),
            _ => {
                let index = self.mix[self.rng.index(self.mix.len())];
                (&self.templates[index], self.rng.below(FLOWS))
            }
        };
        let bytes = &template.frame;
        let frame = packet.append(bytes.len()).expect("a new mbuf has room for any template");
        frame.copy_from_slice(bytes);
        let random = self.rng.next_u64();
        match template.vary {
            Vary::Lasting => put_client(frame, [18, (number >> 8) as u8, number as u8], 1024),
            Vary::Anyone => put_client(frame, low_bytes(random), (random >> 32) as u16),
            Vary::Fragment => {
                frame[18..20].copy_from_slice(&((random >> 48) as u16).to_be_bytes());
                put_client(frame, low_bytes(random), 1024);
            }
            Vary::Mutated => {
                for shift in [0, 16, 32] {
                    let at = (random >> shift) as usize % frame.len().min(96);
                    frame[at] = (random >> (shift + 8)) as u8;
                }
            }
            Vary::Nothing => {}
        }
    }

    /// Records how long this thread worked since the last burst was passed on.
    fn note_burst(&self) {
        if let Some(handed_ns) = self.handed_ns {
            self.gauges.worst_burst_ns.fetch_max(cpu_ns() - handed_ns, Relaxed);
        }
    }
}

fn low_bytes(random: u64) -> [u8; 3] {
    [random as u8, (random >> 8) as u8, (random >> 16) as u8]
}

/// Makes 198.x.y.z and a port the source of an untagged IPv4 frame without options.
fn put_client(frame: &mut [u8], address: [u8; 3], port: u16) {
    frame[26] = 198;
    frame[27..30].copy_from_slice(&address);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    ipv4::fill_checksum(&mut frame[14..34]).expect("a header without options");
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Source for Traffic<'_> {
    type Item = Mbuf;

    fn poll(&mut self, burst: &mut Burst<Mbuf>) -> usize {
        self.note_burst();
        self.handed_ns = None;
        let count = BURST_LEN.min(burst.room()).min((self.packets - self.made_count) as usize);
        let start = burst.len();
        if count == 0 || !self.mempool.alloc_burst(burst, count) {
            return 0;
        }
        for index in start..start + count {
            self.write(&mut burst.as_mut_slice()[index]);
            self.made_count += 1;
        }
        self.gauges.made_count.store(self.made_count, Relaxed);
        self.handed_ns = Some(cpu_ns());
        count
    }

    /// So that a full ring loses none, and the attacks come at the rate that the balancer can take.
    fn lossless(&self) -> bool {
        true
    }

    fn finished(&self) -> bool {
        self.made_count == self.packets
    }
}

/// The sink: every packet returns to its pool.
pub struct Discard;

impl Sink for Discard {
    type Item = Mbuf;

    fn send(&mut self, burst: &mut Burst<Mbuf>) -> usize {
        let count = burst.len();
        burst.clear();
        count
    }
}

/// The first template opens a lasting connection.
fn templates() -> Vec<Template> {
    let client = "198.51.100.7:4000";
    let web = || tcp().from(client).to("203.0.113.10:80");
    let dns = || udp().from(client).to("203.0.113.20:53");
    let fragments = dns().payload([1; 3000]).build_fragments(1500);
    let [first, .., last] = &fragments[..] else { unreachable!("3,000 bytes are several pieces") };
    let own = || tcp().from("192.0.2.1:4000").to("203.0.113.10:80");
    let reply = || tcp().from("203.0.113.10:80").to(client).tunnelled("10.0.0.1", "192.0.2.1");
    let of = |frame, vary, permille| Template { frame, vary, permille };
    let templates = vec![
        of(web().tcp_flags(SYN).build(), Vary::Lasting, 10),
        of(web().tcp_flags(ACK).payload([7; 10]).build(), Vary::Lasting, 600),
        of(web().tcp_flags(ACK).payload([7; 1400]).build(), Vary::Lasting, 40),
        of(web().tcp_flags(SYN).build(), Vary::Anyone, 60),
        of(web().tcp_flags(ACK).build(), Vary::Anyone, 60),
        of(dns().payload([1; 30]).build(), Vary::Anyone, 60),
        of(tcp().from(client).to("203.0.113.30:80").tcp_flags(SYN).build(), Vary::Anyone, 20),
        of(first.clone(), Vary::Fragment, 20),
        of(last.clone(), Vary::Fragment, 20),
        of(web().ttl(1).build(), Vary::Anyone, 20),
        // Fragmented, or answered as too big.
        of(web().payload([3; 1450]).build(), Vary::Anyone, 10),
        of(web().payload([3; 1450]).dont_fragment().build(), Vary::Anyone, 10),
        of(echo_request(1, 2).from("198.51.100.7").to("203.0.113.10").build(), Vary::Nothing, 10),
        of(too_big(&reply().payload([0; 800]).build(), 1280).build(), Vary::Nothing, 5),
        of(own().build(), Vary::Nothing, 5),
        of(reply().payload([1; 500]).build(), Vary::Nothing, 20),
        of(web().payload([5; 64]).build(), Vary::Mutated, 10),
        of(reply().payload([5; 64]).build(), Vary::Mutated, 10),
        of(
            udp().from("[2001:db8:c::7]:4000").to("[2001:db8:f::10]:53").payload([2; 64]).build(),
            Vary::Mutated,
            10,
        ),
    ];
    assert!(templates.iter().all(|template| template.frame.len() <= FRAME_BYTES_MAX));
    templates
}
