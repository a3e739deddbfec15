//! Which stage panicked: found while the stack unwinds, so that it costs nothing before.

use std::any::Any;
use std::cell::RefCell;

thread_local! {
    /// The innermost place at work when this thread's panic began.
    static CULPRIT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Names a place when the stack unwinds through it.
struct AtWork<N: Fn() -> String>(N);

impl<N: Fn() -> String> Drop for AtWork<N> {
    #[cold]
    fn drop(&mut self) {
        CULPRIT.with_borrow_mut(|culprit| {
            culprit.get_or_insert_with(&self.0);
        });
    }
}

/// Does `work`, which is the author's: a panic in it is that of the place called `name`, unless it
/// comes from further inside.
#[inline(always)]
pub(crate) fn blame<R>(name: impl Fn() -> String, work: impl FnOnce() -> R) -> R {
    let at_work = AtWork(name);
    let result = work();
    std::mem::forget(at_work);
    result
}

/// A panic that was caught.
#[derive(Clone, Debug)]
pub(crate) struct Panic {
    /// The stage that panicked, or what the engine calls its own place.
    pub(crate) place: String,
    /// What it said.
    pub(crate) text: String,
}

impl Panic {
    /// The panic that this thread has just caught.
    pub(crate) fn caught(panic: &(dyn Any + Send)) -> Self {
        let place =
            CULPRIT.with_borrow_mut(Option::take).unwrap_or_else(|| "the engine".to_owned());
        Self { place, text: panic_text(panic) }
    }
}

/// What a panic said.
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
    fn the_innermost_place_is_blamed_once() {
        let inner = || blame(|| "inner".to_owned(), || panic!("boom"));
        let payload = catch_unwind(|| blame(|| "outer".to_owned(), inner)).unwrap_err();
        let panic = Panic::caught(payload.as_ref());
        assert_eq!((panic.place.as_str(), panic.text.as_str()), ("inner", "boom"));
        assert_eq!(Panic::caught(payload.as_ref()).place, "the engine");
    }
}
