//! The origin of a panic: recorded while the stack unwinds, so that it costs nothing before.

use std::any::Any;
use std::cell::RefCell;

thread_local! {
    /// The innermost place at work when the panic of this thread began.
    static ORIGIN: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records, while the stack unwinds, that the panic comes from the place called `name`, unless a
/// place further inside was recorded.
#[cold]
pub(crate) fn record(name: &str) {
    ORIGIN.with_borrow_mut(|origin| {
        origin.get_or_insert_with(|| name.to_owned());
    });
}

/// Calls `work`, an author's code. A panic in it is attributed to the place called `name`, unless
/// it comes from further inside.
#[inline(always)]
pub(crate) fn attribute<R>(name: &str, work: impl FnOnce() -> R) -> R {
    struct AtWork<'a>(&'a str);
    impl Drop for AtWork<'_> {
        #[cold]
        fn drop(&mut self) {
            record(self.0);
        }
    }
    let at_work = AtWork(name);
    let result = work();
    std::mem::forget(at_work);
    result
}

/// A panic that was caught.
#[derive(Clone, Debug)]
pub(crate) struct Panic {
    /// The stage that panicked, or the engine's name for its own place.
    pub(crate) place: String,
    /// The panic's message.
    pub(crate) text: String,
}

impl Panic {
    /// The panic that this thread has just caught.
    pub(crate) fn caught(panic: &(dyn Any + Send)) -> Self {
        let place = ORIGIN.with_borrow_mut(Option::take).unwrap_or_else(|| "the engine".to_owned());
        Self { place, text: panic_text(panic) }
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn the_innermost_place_is_recorded_once() {
        let inner = || attribute("inner", || panic!("boom"));
        let payload = catch_unwind(|| attribute("outer", inner)).unwrap_err();
        let panic = Panic::caught(payload.as_ref());
        assert_eq!((panic.place.as_str(), panic.text.as_str()), ("inner", "boom"));
        assert_eq!(Panic::caught(payload.as_ref()).place, "the engine");
    }
}
