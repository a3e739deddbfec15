//! Where there is no engine, the macros say what `tracing`'s say: the same lines, for whoever listens.

use hotloop_packet::ethernet::MacAddress;
use hotloop_stage::log;
use hotloop_stage::log::{Recorder, Site, Values, enter};
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};
use tracing::subscriber::with_default;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;

/// What a subscriber writes.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn take(&self) -> String {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8(bytes).unwrap()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Interest is kept for all subscribers of a process: one test at a time has one.
fn alone() -> impl Drop {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says the same by `tracing`'s macro and by ours, and compares the lines.
macro_rules! assert_same {
    ($written:ident: $name:ident!($($arg:tt)+)) => {{
        tracing::$name!($($arg)+);
        let expected = $written.take();
        log::$name!($($arg)+);
        assert_eq!($written.take(), expected);
        assert_eq!(expected.lines().count(), 1, "{expected}");
    }};
}

fn say_everything(written: &Written) {
    let (port, bytes, name) = (80_u16, [1_u8, 2, 255], "eth0");
    let (address, mac) = (Ipv4Addr::new(192, 0, 2, 1), MacAddress::new([2, 0, 0, 0, 0, 1]));
    let ip = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
    assert_same!(written: error!("plain"));
    assert_same!(written: warn!("a {} b {:?} c {:>9}|{{}}", port, name, address));
    assert_same!(written: info!("{} of {number}, {}", mac, ip, number = -7_i64));
    assert_same!(written: info!("trailing {}", true,));
    assert_same!(written: warn!(port, name, up = false, "fields"));
    assert_same!(written: warn!(%address, ?bytes, peer = %ip, by = ?mac, count = 3 + 4, "with {}", 9_u8));
    assert_same!(written: debug!(port, signed = -1_i32));
    assert_same!(written: trace!(target: "another", "there"));
    assert_same!(written: trace!(target: "another", port = 1_u64, "there: {:?}", bytes));
    assert_same!(written: error!(a = 1, b = 2, c = 3, "{} {} {}", 4, 5, 6));
}

#[test]
fn lines_are_those_of_tracing() {
    let _alone = alone();
    let written = Written::default();
    let writer = written.clone();
    let text = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .without_time()
        .with_file(true)
        .with_line_number(true)
        .with_writer(move || writer.clone());
    with_default(text.finish(), || say_everything(&written));

    let writer = written.clone();
    let json = tracing_subscriber::fmt()
        .json()
        .with_max_level(LevelFilter::TRACE)
        .without_time()
        .with_line_number(true)
        .with_writer(move || writer.clone());
    with_default(json.finish(), || say_everything(&written));
}

/// Notes how often it was asked, and takes the values.
#[derive(Default)]
struct Asked(RefCell<Vec<(&'static Site, Values)>>);

impl Recorder for Asked {
    fn record(&self, site: &'static Site, values: &mut dyn FnMut() -> Values) {
        self.0.borrow_mut().push((site, values()));
    }
}

#[test]
fn what_nobody_wants_is_not_recorded() {
    let _alone = alone();
    let written = Written::default();
    let writer = written.clone();
    let filter = Targets::new().with_target("wanted", LevelFilter::DEBUG);
    let layer = tracing_subscriber::fmt::layer().without_time().with_writer(move || writer.clone());
    let subscriber = tracing_subscriber::registry().with(layer).with(filter);
    let evaluated = RefCell::new(0_u32);
    let value = || {
        *evaluated.borrow_mut() += 1;
        7_u32
    };
    let say = || {
        log::debug!(target: "wanted", "{}", value());
        log::trace!(target: "wanted", "{}", value());
        log::error!(target: "other", "{}", value());
    };
    let asked = Rc::new(Asked::default());
    assert!(enter(Some(asked.clone())).is_none());
    with_default(subscriber, || {
        say();
        // Nothing is known yet of the third.
        assert_eq!((asked.0.borrow().len(), *evaluated.borrow()), (2, 2));
        for (site, values) in asked.0.take() {
            site.send(&values, None);
        }
        assert_eq!(written.take(), "DEBUG wanted: 7\n");
        say();
        assert_eq!((asked.0.borrow().len(), *evaluated.borrow()), (1, 3));
    });
    assert!(enter(None).is_some());
}

#[test]
fn an_event_knows_when_it_was_recorded() {
    struct Times(Mutex<Vec<Option<std::time::SystemTime>>>);

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for &'static Times {
        fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            self.0.lock().unwrap().push(log::event_time());
        }
    }

    let _alone = alone();
    static TIMES: Times = Times(Mutex::new(Vec::new()));
    let at = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let asked = Rc::new(Asked::default());
    with_default(tracing_subscriber::registry().with(&TIMES), || {
        enter(Some(asked.clone()));
        log::info!("later");
        enter(None);
        log::info!("now");
        let (site, values) = asked.0.borrow()[0];
        site.send(&values, Some(at));
        site.send_left_out(3, 1);
    });
    assert_eq!(*TIMES.0.lock().unwrap(), [None, Some(at), None]);
    assert_eq!(log::event_time(), None);
}

#[test]
fn each_site_has_an_index_of_its_own() {
    let asked = Rc::new(Asked::default());
    let _alone = alone();
    with_default(tracing_subscriber::registry().with(LevelFilter::INFO), || {
        enter(Some(asked.clone()));
        for _ in 0..2 {
            log::info!("one");
            log::info!("two");
        }
        enter(None);
    });
    let seen = asked.0.borrow();
    let indices: Vec<_> = seen.iter().map(|(site, _)| site.index()).collect();
    assert!(indices[0] > 0 && indices[1] > 0 && indices[0] != indices[1]);
    assert_eq!(indices[..2], indices[2..]);
    for (site, _) in seen.iter() {
        assert!(std::ptr::eq(Site::of_index(site.index()).unwrap(), *site));
    }
    assert!(Site::of_index(0).is_none() && Site::of_index(usize::MAX).is_none());
}
