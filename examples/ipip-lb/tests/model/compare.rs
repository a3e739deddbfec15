//! Runs both in parallel, and describes their differences.

use super::describe::{described, difference, hex};
use super::lab::{Lab, STATIONS};
use super::rules::{Input, Model, Outcome};
use super::scene::{Scene, Style};
use super::traffic::{Flow, Talk, Traffic};
use super::wire::UDP;
use hotloop::testing::Rng;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Number of times that each rule and drop reason occurred.
pub type Met = BTreeMap<&'static str, u64>;

/// One configuration, its changes, and its traffic.
struct Run {
    seed: u64,
    rng: Rng,
    scene: Scene,
    traffic: Traffic,
    lab: Lab,
    model: Model,
    now_ms: u64,
    /// Whether each packet comes in a burst of its own: to find the one that made the difference.
    is_single: bool,
    /// Packets that were fed, or created.
    received: u64,
    /// Packets that were sent or dropped.
    left: u64,
    fed: u64,
    burst_count: u64,
}

/// Runs `packet_count` packets of this seed through both.
///
/// # Errors
/// The first difference, with everything needed to examine it.
pub fn run(seed: u64, packet_count: u64) -> Result<Met, String> {
    let in_bursts = Run::new(seed, false).run(packet_count);
    in_bursts.map_err(|report| match Run::new(seed, true).run(packet_count) {
        Ok(_) => format!("{report}\nPacket by packet there is no difference: it is the burst."),
        Err(single) => single,
    })
}

impl Run {
    fn new(seed: u64, is_single: bool) -> Self {
        let mut rng = Rng::seeded(seed);
        let scene = Scene::new(rng.fork());
        let traffic = Traffic::new(rng.fork(), &scene);
        let worker_count = scene.config.engine.workers;
        let worker = rng.index(worker_count);
        let lab = Lab::new(&scene.config, worker);
        let model = Model::new(&scene.config, STATIONS, (worker_count, worker));
        Self {
            seed,
            rng,
            scene,
            traffic,
            lab,
            model,
            now_ms: 0,
            is_single,
            received: 0,
            fed: 0,
            left: 0,
            burst_count: 0,
        }
    }

    fn run(mut self, packet_count: u64) -> Result<Met, String> {
        while self.fed < packet_count {
            if self.rng.permille(60) {
                // Connections that had expired with the old timeouts must be known before there are
                // new ones.
                self.check_table()?;
                self.scene.churn();
                self.traffic.look_at(&self.scene);
                self.model.net.renew(&self.scene.config, &self.scene.standing);
                self.model.met("churn");
                let (outcome, expected) =
                    self.quiet(|lab, scene| lab.renew(&scene.config, &scene.standing));
                self.check(&[], &outcome, &expected)?;
                self.lab.let_look_at_all();
                self.model.mark();
            }
            if self.scene.style == Style::Ample && self.rng.permille(12) {
                self.storm()?;
            }
            let count = match self.rng.index(4) {
                0 => 1,
                1 => 64,
                _ => 1 + self.rng.index(63),
            };
            let inputs: Vec<_> = (0..count).map(|_| self.traffic.next()).collect();
            let ms = 100
                * match self.rng.index(100) {
                    0..30 => 0,
                    30..80 => 1 + self.rng.below(4),
                    80..95 => 5 + self.rng.below(15),
                    95..99 => 50 + self.rng.below(50),
                    _ => 590 + self.rng.below(20),
                };
            self.pass(ms)?;
            self.feed(&inputs)?;
        }
        self.finish()
    }

    fn finish(mut self) -> Result<Met, String> {
        self.model.finish();
        let (outcome, expected) = self.quiet(|lab, _| lab.finish());
        self.check(&[], &outcome, &expected)?;
        let held = self.lab.held() as u64;
        if held != 0 || self.received != self.left {
            let (received, left) = (self.received, self.left);
            return Err(
                self.report(&[], &format!("{received} in and created, {left} out, {held} held"))
            );
        }
        self.check_table()?;
        self.model.met.insert("packet", self.fed);
        Ok(self.model.met)
    }

    /// Changes the balancer without any packets.
    fn quiet(&mut self, act: impl FnOnce(&mut Lab, &Scene) -> Outcome) -> (Outcome, Outcome) {
        let outcome = act(&mut self.lab, &self.scene);
        self.model.tick(self.now_ms * 1_000_000);
        (outcome, std::mem::take(&mut self.model.outcome))
    }

    /// Lets time pass.
    fn pass(&mut self, ms: u64) -> Result<(), String> {
        self.now_ms += ms;
        self.lab.advance(Duration::from_millis(ms));
        let (outcome, expected) = self.quiet(|lab, _| lab.tick());
        self.check(&[], &outcome, &expected)
    }

    /// Feeds packets in bursts to both, and compares.
    fn feed(&mut self, inputs: &[Input]) -> Result<(), String> {
        for burst in inputs.chunks(if self.is_single { 1 } else { 64 }) {
            self.burst_count += 1;
            let follows = self.scene.style != Style::Ample;
            if follows {
                self.check_table()?;
            }
            let outcome = self.lab.feed(burst);
            self.model.observed.clone_from(&outcome.sent);
            for input in burst {
                self.model.packet(input);
            }
            let expected = std::mem::take(&mut self.model.outcome);
            self.received += burst.len() as u64;
            self.fed += burst.len() as u64;
            self.check(burst, &outcome, &expected)?;
            if follows || self.burst_count.is_multiple_of(16) {
                self.check_table()?;
            }
        }
        Ok(())
    }

    fn check(
        &mut self,
        burst: &[Input],
        outcome: &Outcome,
        expected: &Outcome,
    ) -> Result<(), String> {
        self.received += outcome.created;
        self.left += outcome.sent.len() as u64 + outcome.dropped.values().sum::<u64>();
        let mut outcome = outcome.clone();
        if self.scene.style == Style::Tiny {
            // The balancer decides which connections found room; the model follows.
            (outcome.admitted, outcome.stateless) = (expected.admitted, expected.stateless);
            outcome.replies_known = expected.replies_known;
        }
        let held = (self.lab.held(), self.model.waiting.len());
        if outcome == *expected && held.0 == held.1 {
            return Ok(());
        }
        Err(self.report(burst, &difference(&outcome, expected, held)))
    }

    fn check_table(&mut self) -> Result<(), String> {
        let listing = self.lab.listing();
        self.model.check_table(listing).map_err(|problem| self.report(&[], &problem))
    }

    fn report(&self, burst: &[Input], problem: &str) -> String {
        let mut text = format!(
            "seed {}, {:?}, up to packet {}, at {} ms, one of {} workers: {problem}\n",
            self.seed, self.scene.style, self.fed, self.now_ms, self.scene.config.engine.workers
        );
        for input in burst {
            let _ = writeln!(text, "  in: {} | {}", described(&input.frame), hex(&input.frame));
        }
        let _ = writeln!(text, "  balancer: {:?}", self.scene.config.balancer);
        for service in &self.model.net.services {
            let _ = writeln!(text, "  service {:?}: {:?}", service.id, service.config);
            let _ = writeln!(text, "    usable {:?} of {:?}", service.usable, service.targets);
        }
        text
    }

    /// Many packets of one kind at one time.
    fn storm(&mut self) -> Result<(), String> {
        match self.rng.index(12) {
            0..6 => {
                self.pass(2_000)?;
                let frames: Vec<_> = (0..300).map(|id| self.traffic.orphan(5000 + id)).collect();
                self.feed_frames(frames)
            }
            6..11 => {
                let Some(flow) = self.served_flow() else { return Ok(()) };
                let frames = self.traffic.unanswerable(&flow, 1100);
                self.feed_frames(frames)
            }
            _ => self.storm_of_datagrams(),
        }
    }

    /// More datagrams than a worker remembers.
    fn storm_of_datagrams(&mut self) -> Result<(), String> {
        let Some(flow) = self.served_flow() else { return Ok(()) };
        let datagrams: Vec<_> =
            (0..4200).map(|id| self.traffic.first_and_last(&flow, 100 + id)).collect();
        self.feed_frames(datagrams.iter().map(|[first, _]| first.clone()).collect())?;
        let lasts = datagrams.iter().map(|[_, last]| last.clone());
        self.feed_frames(lasts.clone().take(150).chain(lasts.skip(4050)).collect())
    }

    fn feed_frames(&mut self, frames: Vec<Vec<u8>>) -> Result<(), String> {
        let inputs = frames.into_iter().map(|frame| Input { frame, headroom_bytes: 128 });
        self.feed(&inputs.collect::<Vec<_>>())
    }

    /// A flow of UDP that some service takes and has a backend for.
    fn served_flow(&mut self) -> Option<Flow> {
        (0..60).find_map(|_| {
            let flow = Flow { kind: Talk::Udp, ..self.traffic.flow() };
            let vip = flow.vip.parse().expect("an address");
            let service = self.model.net.service(vip, UDP, flow.vip_port)?;
            (!self.model.net.services[service].usable.is_empty()).then_some(flow)
        })
    }
}
