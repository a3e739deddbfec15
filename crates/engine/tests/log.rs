//! What stages log: in order, limited, and accounted for to the record.

mod common;

use common::{Parcel, World};
use hotloop_engine::{
    Chain, Control, Deployment, Engine, LOG_BURST, LOG_RING_CAPACITY, Report, RunError, source,
};
use hotloop_stage::{each, log};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

/// An event: its target and message, and when it was recorded.
#[derive(Clone, Debug)]
struct Said {
    target: String,
    message: String,
    at: Option<SystemTime>,
}

/// Every event of this process, in the order in which they were sent.
static SAID: Mutex<Vec<Said>> = Mutex::new(Vec::new());

/// Notes each event.
struct Notes;

impl<S: Subscriber> Layer<S> for Notes {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        struct Message(String);

        impl Visit for Message {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }

        let mut message = Message(String::new());
        event.record(&mut message);
        let target = event.metadata().target().to_owned();
        let said = Said { target, message: message.0, at: log::event_time() };
        SAID.lock().unwrap_or_else(PoisonError::into_inner).push(said);
    }
}

/// One test at a time: they share the subscriber.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The first test sets it for all.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Notes));
    SAID.lock().unwrap_or_else(PoisonError::into_inner).clear();
    alone
}

fn said() -> Vec<Said> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Runs a stage that does `work` with each of so many packets of each core.
fn run(
    deployment: Deployment,
    count: u64,
    work: impl Fn(&Parcel) + Sync,
    control: impl FnOnce(&Control<'_>),
) -> Result<Report, RunError> {
    let (world, work) = (World::new(), &work);
    let graph = source(|core| Ok::<_, hotloop_stage::Error>(world.rx(core, count)))
        .stage(|_| {
            each(move |parcel: Parcel| {
                work(&parcel);
                parcel
            })
        })
        .sink(|core| Ok::<_, hotloop_stage::Error>(world.tx(core)));
    Engine::plan(graph, deployment).unwrap().run(control)
}

fn finish(control: &Control<'_>) {
    control.wait_until_finished();
}

/// How many records the lines say were left out, and how many were lost.
fn missing(said: &[Said]) -> (u64, u64) {
    let number = |said: &Said, mark| {
        let (count, _) = said.message.split_once(mark)?;
        Some(count.parse::<u64>().unwrap())
    };
    let left_out = said.iter().filter_map(|said| number(said, " more like this in the last "));
    let lost = said.iter().filter_map(|said| number(said, " records of cores were lost"));
    (left_out.sum(), lost.sum())
}

/// Those that are records.
fn records(said: &[Said]) -> Vec<&Said> {
    said.iter().filter(|said| said.at.is_some()).collect()
}

#[test]
fn records_become_events_in_the_order_in_which_they_were_made() {
    let _alone = alone();
    let begun = SystemTime::now();
    let work = |parcel: &Parcel| {
        log::warn!(target: "a", "{} of {}", parcel.sequence, "a");
        log::error!(target: "b", "{} of {name}", parcel.sequence, name = "b");
    };
    let count = u64::from(LOG_BURST);
    run(Deployment::run_to_completion(1), count, work, finish).unwrap();
    let said = said();
    let messages: Vec<_> = said.iter().map(|said| said.message.clone()).collect();
    let expected: Vec<_> = (0..count)
        .flat_map(|number| ["a", "b"].map(|name| format!("{number} of {name}")))
        .collect();
    assert_eq!(messages, expected);
    let times: Vec<_> = said.iter().map(|said| said.at.unwrap()).collect();
    // The two clocks need not agree to the microsecond.
    assert!(
        times[0] + Duration::from_millis(10) > begun && times.is_sorted(),
        "{begun:?} {times:?}"
    );
    assert!(*times.last().unwrap() <= SystemTime::now() + Duration::from_millis(10), "{times:?}");
    assert!(
        said.iter().all(|said| said.target == if said.message.ends_with('a') { "a" } else { "b" })
    );
}

#[test]
fn a_place_that_repeats_itself_is_limited_and_what_it_left_out_is_counted() {
    let _alone = alone();
    let begun = Instant::now();
    let work = |parcel: &Parcel| {
        log::info!("number {}", parcel.sequence);
        if parcel.sequence == 5 {
            log::info!("once");
        }
    };
    let count = 50_000;
    run(Deployment::run_to_completion(2), count, work, finish).unwrap();
    let (said, seconds) = (said(), begun.elapsed().as_secs());
    let made = said.iter().filter(|said| said.message.starts_with("number ")).count() as u64;
    let most = 2 * (u64::from(LOG_BURST) + seconds + 1);
    assert!(made >= 2 * u64::from(LOG_BURST) && made <= most, "{made} in {seconds} s");
    assert_eq!(missing(&said), (2 * count - made, 0));
    let report = said.iter().find(|said| said.message.contains(" more like this ")).unwrap();
    assert!(report.message.ends_with(": number {}"), "{report:?}");
    assert_eq!(report.target, module_path!());
    // Only queue 0 has a packet of that number.
    assert_eq!(said.iter().filter(|said| said.message == "once").count(), 1);
}

/// A place in the source for each number, and so a limit of its own.
macro_rules! many_places {
    ($parcel:ident: $($number:literal)+) => {
        $(log::info!(target: "many", "{} {}", $number, $parcel.sequence);)+
    };
}

#[test]
fn what_the_ring_has_no_room_for_is_lost_and_counted() {
    let _alone = alone();
    let handled = AtomicU64::new(0);
    let work = |parcel: &Parcel| {
        many_places!(parcel:
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34
            35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66
            67 68 69 70 71 72 73 74 75 76 77 78 79);
        handled.fetch_add(1, SeqCst);
    };
    let count = 12;
    // Control does not wait before all is done, so nobody takes anything away.
    let control = |control: &Control<'_>| {
        while handled.load(SeqCst) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
        finish(control);
    };
    run(Deployment::run_to_completion(1), count, work, control).unwrap();
    let said = said();
    let (left_out, lost) = missing(&said);
    let sent = records(&said).len() as u64;
    assert_eq!(sent + left_out + lost, 80 * count);
    assert!(sent >= LOG_RING_CAPACITY as u64 && lost > 0, "{sent} sent, {lost} lost");
    // The newest are lost, so what is there is the beginning.
    let first: Vec<_> = records(&said)[..3].iter().map(|said| said.message.as_str()).collect();
    assert_eq!(first, ["0 0", "1 0", "2 0"]);
}

#[test]
fn who_follows_sends_and_control_does_not() {
    let _alone = alone();
    let (seen, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = |parcel: &Parcel| {
        log::info!("number {}", parcel.sequence);
        while parcel.sequence == 0 && seen.load(SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        let control = |control: &Control<'_>| {
            let logs = control.logs().follow();
            // Long enough for it to look several times.
            control.wait_for(Duration::from_millis(100));
            assert_eq!(said().len(), 0);
            scope.spawn(move || while logs.send() {});
            while said().is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            seen.store(1, SeqCst);
            finish(control);
        };
        run(Deployment::run_to_completion(1), 5, work, control).unwrap();
        is_over.store(true, SeqCst);
    });
    // The thread that followed has ended by itself.
    let messages: Vec<_> = said().into_iter().map(|said| said.message).collect();
    assert_eq!(messages, (0..5).map(|number| format!("number {number}")).collect::<Vec<_>>());
}

#[test]
fn a_stage_that_panics_has_logged_what_it_logged() {
    let _alone = alone();
    let work = |parcel: &Parcel| {
        log::error!("at {}", parcel.sequence);
        assert!(parcel.sequence < 3, "on purpose");
    };
    let deployment = Deployment::run_to_completion(1);
    assert!(matches!(run(deployment, 10, work, finish), Err(RunError::Panicked(_))));
    let messages: Vec<_> = said().into_iter().map(|said| said.message).collect();
    assert_eq!(messages, ["at 0", "at 1", "at 2", "at 3"]);
}

#[test]
fn a_run_after_another_has_its_own_limits() {
    let _alone = alone();
    let count = Arc::new(AtomicU64::new(0));
    for _ in 0..2 {
        run(Deployment::pipeline([1]), 20, |_| log::info!("again"), finish).unwrap();
        let made = said().iter().filter(|said| said.message == "again").count() as u64;
        assert_eq!(made - count.swap(made, SeqCst), u64::from(LOG_BURST));
    }
    assert_eq!(missing(&said()), (20, 0));
}
