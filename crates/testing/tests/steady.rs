//! Watches threads that run the engine.

use hotloop_engine::{Chain, Deployment, Engine, Graph, source};
use hotloop_stage::{Burst, Core, Sink, Source, each};
use hotloop_testing::syscalls::{Traced, traced};
use hotloop_testing::{
    AllocGuard, MemoryPort, PacketPool, PooledPacket, PortConfig, Steady, SteadyThread,
};

#[global_allocator]
static GUARD: AllocGuard = AllocGuard;

const FRAME_COUNT: u64 = 200_000;

/// A port that generates a fixed number of frames for each RX queue without allocating.
fn port(queue_count: usize) -> MemoryPort {
    let config = PortConfig {
        pool: PacketPool::of(4096),
        // So that every frame passes, however the threads are scheduled.
        lossless: true,
        records_sent: false,
        ..PortConfig::default()
    };
    let port = MemoryPort::with_config("memory", config);
    for queue_index in 0..queue_count {
        port.generate(queue_index, |number, frame| {
            frame.bytes.extend_from_slice(&[number as u8; 60]);
            number < FRAME_COUNT
        });
    }
    port
}

/// Wraps what to watch on a core of a pipeline or of run-to-completion: its source, or its sink if
/// it has no source.
fn watched_graph<'a>(
    port: &'a MemoryPort,
    steady: &'a Steady,
    extra: usize,
    deployment: Deployment,
) -> impl Graph + 'a {
    source(move |core: &Core| {
        port.rx_queue(core).map(|rx| steady.watch(format!("group {} rx", core.group()), rx))
    })
    .stage(move |_| {
        each(move |packet: PooledPacket| {
            // If requested, allocates as a stage must not in steady state.
            std::hint::black_box(Vec::<u8>::with_capacity(extra));
            packet
        })
    })
    .shard_by(|packet: &PooledPacket| packet.index() as u32)
    .sink(move |core: &Core| {
        let never = Steady::after(u64::MAX, 0);
        let watching = if !deployment.is_run_to_completion() { steady } else { &never };
        port.tx_queue(core).map(|tx| watching.watch(format!("group {} tx", core.group()), tx))
    })
}

fn run(deployment: Deployment, extra: usize) -> Vec<SteadyThread> {
    let port = port(deployment.cores_in(0));
    let steady = Steady::after(50_000, 100_000);
    let plan = Engine::plan(watched_graph(&port, &steady, extra, deployment), deployment).unwrap();
    plan.run(|control| {
        control.wait_until_finished();
    })
    .unwrap();
    steady.threads()
}

#[test]
fn the_engine_allocates_nothing_in_steady_state() {
    let threads = run(Deployment::run_to_completion(1), 0);
    assert_eq!(threads.len(), 1);
    let thread = &threads[0];
    assert_eq!(thread.name, "group 0 rx");
    assert!(thread.is_complete && thread.packet_count >= 100_000, "{thread:?}");
    assert!(thread.allocations.is_zero(), "{thread:?}");
}

#[test]
fn a_stage_that_allocates_is_seen() {
    let threads = run(Deployment::run_to_completion(1), 1);
    let thread = &threads[0];
    assert_eq!(thread.allocations.allocated, thread.packet_count, "{thread:?}");
    assert_eq!(thread.allocations.freed, thread.packet_count, "{thread:?}");
}

#[test]
fn threads_of_a_pipeline_are_watched_apart() {
    let mut threads = run(Deployment::pipeline([1, 1]), 0);
    threads.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<_> = threads.iter().map(|thread| thread.name.as_str()).collect();
    assert_eq!(names, ["group 0 rx", "group 1 tx"]);
    for thread in threads {
        assert!(thread.is_complete && thread.packet_count >= 100_000, "{thread:?}");
        assert!(thread.allocations.is_zero(), "{thread:?}");
    }
}

#[test]
fn the_engine_makes_no_system_calls_in_steady_state() {
    let name = "the_engine_makes_no_system_calls_in_steady_state";
    match traced(name, || drop(run(Deployment::run_to_completion(1), 0))) {
        Traced::InCopy => {}
        Traced::Unavailable(why) => println!("skipped: {why}"),
        Traced::Windows(windows) => {
            assert_eq!(windows.len(), 1);
            assert_eq!(windows[0].name, "group 0 rx");
            assert_eq!(windows[0].call_count, 0);
        }
    }
}

#[test]
fn traffic_that_ends_early_is_not_taken_for_a_full_watch() {
    let core = Core::new(0, 1);
    for (warm_up_count, packet_count) in [(FRAME_COUNT - 64, 64), (FRAME_COUNT + 1, 0)] {
        let (port, steady) = (port(1), Steady::after(warm_up_count, 100));
        let mut rx = steady.watch("rx", port.rx_queue(&core).unwrap());
        let mut burst = Burst::new();
        while rx.poll(&mut burst) > 0 {
            burst.clear();
        }
        drop(rx);
        let thread = only(&steady);
        assert_eq!((thread.packet_count, thread.is_complete), (packet_count, false));
    }
}

fn only(steady: &Steady) -> SteadyThread {
    let threads = steady.threads();
    assert_eq!(threads.len(), 1);
    threads[0].clone()
}

#[test]
fn a_sink_is_watched_as_a_source_is() {
    let port = port(1);
    let core = Core::new(0, 1);
    let steady = Steady::after(64, 128);
    let mut rx = port.rx_queue(&core).unwrap();
    let mut tx = steady.watch("tx", port.tx_queue(&core).unwrap());
    let mut burst = Burst::new();
    for round in 0..4 {
        rx.poll(&mut burst);
        assert_eq!(tx.send(&mut burst), 64);
        // Watched from the second send on: one allocation in each of the two rounds watched.
        drop(std::hint::black_box(vec![round; 10]));
    }
    let thread = only(&steady);
    assert!(thread.is_complete);
    assert_eq!((thread.packet_count, thread.allocations.allocated), (128, 2));
}
