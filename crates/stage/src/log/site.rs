//! A place in the source that logs: what `tracing` knows of it, and how its records become events.

use super::value::{Kind, Value, Values};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Once, OnceLock};
use std::time::SystemTime;
use tracing::field::{DebugValue, DisplayValue, debug, display};
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use tracing::subscriber::Interest;
use tracing::{Callsite, Event, Level, Metadata, callsite, dispatcher};

/// How many sites of a process have an [`index`](Site::index) of their own, with 0 for all others.
pub const SITE_COUNT_MAX: usize = 512;

/// The sites by index. Index 0 stands for all those for which there is no other.
static SITES: [OnceLock<&'static Site>; SITE_COUNT_MAX] =
    [const { OnceLock::new() }; SITE_COUNT_MAX];

/// The next index.
static NEXT: AtomicU32 = AtomicU32::new(1);

thread_local! {
    /// The time of the event that this thread sends now.
    static EVENT_TIME: Cell<Option<SystemTime>> = const { Cell::new(None) };
}

/// The time at which the event that this thread sends now was recorded, where that was earlier: for
/// subscribers that write the time of events.
#[must_use]
pub fn event_time() -> Option<SystemTime> {
    EVENT_TIME.get()
}

/// How a field is recorded: as it is, by `{}` or by `{:?}`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Style {
    Plain,
    Display,
    Debug,
}

/// A place in the source that logs. The macros of this module make one each.
pub struct Site {
    metadata: Metadata<'static>,
    styles: &'static [Style],
    text: &'static str,
    message: fn(&[Value], &mut fmt::Formatter<'_>) -> fmt::Result,
    /// Whether no subscriber wants its events, as far as is known.
    is_off: AtomicBool,
    /// Its index and 1, or 0 before it has one.
    number: AtomicU32,
    registration: Once,
}

/// Whether somebody may want events of this level: one relaxed load.
#[inline(always)]
#[must_use]
pub fn is_level_on(level: Level) -> bool {
    level <= STATIC_MAX_LEVEL && level <= LevelFilter::current()
}

impl Site {
    /// For the macros: a field of each style, then the values that `message` shows. `metadata` has a
    /// field "message" before these.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        metadata: Metadata<'static>,
        styles: &'static [Style],
        text: &'static str,
        message: fn(&[Value], &mut fmt::Formatter<'_>) -> fmt::Result,
    ) -> Self {
        let (is_off, number) = (AtomicBool::new(false), AtomicU32::new(0));
        Self { metadata, styles, text, message, is_off, number, registration: Once::new() }
    }

    /// Whether somebody may want its events: one relaxed load. Until its first record was sent, that is
    /// not known.
    #[inline(always)]
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.is_off.load(Relaxed)
    }

    /// Its index, below [`SITE_COUNT_MAX`], the same for as long as the process runs. Sites that log for
    /// the first time when there are as many share 0.
    #[inline]
    pub fn index(&'static self) -> usize {
        match self.number.load(Relaxed) {
            0 => self.find_index(),
            number => number as usize - 1,
        }
    }

    #[cold]
    fn find_index(&'static self) -> usize {
        // Stops at the most, so that it never wraps.
        let next = NEXT.fetch_update(Relaxed, Relaxed, |next| {
            ((next as usize) < SITE_COUNT_MAX).then_some(next + 1)
        });
        let index = next.unwrap_or(0);
        // Where another core was faster, its index holds, and this one is not used.
        match self.number.compare_exchange(0, index + 1, Relaxed, Relaxed) {
            Ok(_) if index > 0 => {
                // Nobody else has this index, so this neither fails nor waits.
                let _ = SITES[index as usize].set(self);
                index as usize
            }
            Ok(_) => 0,
            Err(number) => number as usize - 1,
        }
    }

    /// The site of this index; none for 0, and where there is none yet.
    #[must_use]
    pub fn of_index(index: usize) -> Option<&'static Self> {
        SITES.get(index)?.get().copied()
    }

    /// Sends a record as an event, now: it was recorded `at`, where that was earlier. Not for the packet
    /// path: subscribers may allocate, lock and write.
    pub fn send(&'static self, values: &Values, at: Option<SystemTime>) {
        let (fields, arguments) = values.0.split_at(self.styles.len());
        let message = display(Message { site: self, values: arguments });
        self.dispatch((!self.text.is_empty()).then_some(&message as _), fields, at);
    }

    /// Sends an event that says how many records of the site there are that don't become events of their
    /// own, in so many seconds. Not for the packet path.
    pub fn send_left_out(&'static self, count: u64, seconds: u64) {
        let text = self.text;
        self.dispatch(
            Some(&format_args!("{count} more like this {}: {text}", Period(seconds))),
            &[],
            None,
        );
    }

    fn dispatch(
        &'static self,
        message: Option<&dyn tracing::Value>,
        fields: &[Value],
        at: Option<SystemTime>,
    ) {
        self.registration.call_once(|| callsite::register(self));
        let metadata = &self.metadata;
        if !self.is_on() || !dispatcher::get_default(|current| current.enabled(metadata)) {
            return;
        }
        let shown: Vec<_> =
            fields.iter().zip(self.styles).map(|(value, style)| Shown::of(value, *style)).collect();
        let names: Vec<_> = metadata.fields().iter().collect();
        // The message again, without a value, stands where there are fewer fields.
        let entry = |index: usize| match index {
            0 => (&names[0], message),
            _ => match shown.get(index - 1) {
                Some(shown) => (&names[index], Some(shown.value())),
                None => (&names[0], None),
            },
        };
        let entries: [_; super::VALUE_COUNT_MAX + 1] = std::array::from_fn(entry);
        EVENT_TIME.set(at);
        let _over = EventOver;
        Event::dispatch(metadata, &metadata.fields().value_set(&entries));
    }
}

/// Ends the time of an event, also where a subscriber panics.
struct EventOver;

impl Drop for EventOver {
    fn drop(&mut self) {
        EVENT_TIME.set(None);
    }
}

impl Callsite for Site {
    fn set_interest(&self, interest: Interest) {
        self.is_off.store(interest.is_never(), Relaxed);
    }

    fn metadata(&self) -> &Metadata<'_> {
        &self.metadata
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

struct Message<'a> {
    site: &'static Site,
    values: &'a [Value],
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.site.message)(self.values, f)
    }
}

/// For how long something was counted, in seconds.
struct Period(u64);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 | 1 => f.write_str("in the last second"),
            seconds => write!(f, "in the last {seconds} s"),
        }
    }
}

/// A field as it is recorded.
enum Shown {
    Plain(Value),
    Display(DisplayValue<Value>),
    Debug(DebugValue<Value>),
}

impl Shown {
    fn of(value: &Value, style: Style) -> Self {
        let is_number_or_text =
            matches!(value.0, Kind::Unsigned(_) | Kind::Signed(_) | Kind::Bool(_) | Kind::Text(_));
        match style {
            Style::Plain if is_number_or_text => Self::Plain(*value),
            // Addresses, which tracing takes with `%` alone.
            Style::Plain | Style::Display => Self::Display(display(*value)),
            Style::Debug => Self::Debug(debug(*value)),
        }
    }

    fn value(&self) -> &dyn tracing::Value {
        match self {
            Self::Plain(Value(Kind::Unsigned(number))) => number,
            Self::Plain(Value(Kind::Signed(number))) => number,
            Self::Plain(Value(Kind::Bool(is_so))) => is_so,
            Self::Plain(Value(Kind::Text(text))) => text,
            Self::Plain(_) => &tracing::field::Empty,
            Self::Display(value) => value,
            Self::Debug(value) => value,
        }
    }
}
