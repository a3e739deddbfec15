//! The ring's primitives: the standard ones, or loom's under `--cfg loom`, which explores every
//! interleaving.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

/// Names the orderings that pass information from one thread to the other. Under loom a test
/// weakens one at a time, to check that it is needed and that its absence would be found.
macro_rules! orders {
    ($($(#[$doc:meta])* $name:ident: $order:ident,)*) => {
        pub(crate) mod order {
            use super::Ordering;

            $(
                $(#[$doc])*
                #[inline(always)]
                pub(crate) fn $name() -> Ordering {
                    #[cfg(loom)]
                    if super::planted::is_weak(stringify!($name)) {
                        return Ordering::Relaxed;
                    }
                    Ordering::$order
                }
            )*
        }

        /// Every ordering that can be weakened, by name.
        #[cfg(loom)]
        pub const ORDER_NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

orders! {
    /// The producer shows items of a record, and the cleared header of the next one.
    show_record: Release,
    /// The consumer sees items in a record, and reads them, or moves on to the next header.
    see_record: Acquire,
    /// The producer counts the items shown.
    set_pushed: Release,
    /// The consumer reads how many items it will find.
    see_pushed: Acquire,
    /// The consumer gives items back after it has moved them out.
    give_back: Release,
    /// The producer reads the count of items given back, and overwrites them.
    see_given_back: Acquire,
    /// The producer leaves after showing its last item.
    leave_producer: Release,
    /// The consumer learns that no item comes after those it sees.
    see_producer_gone: Acquire,
    /// The consumer leaves after its last item was counted.
    leave_consumer: Release,
    /// The producer learns that the count of popped items is final.
    see_consumer_gone: Acquire,
}

/// Faults planted for the loom tests: one ordering of the ring made relaxed.
#[cfg(loom)]
pub mod planted {
    use std::cell::Cell;

    pub use super::ORDER_NAMES;

    thread_local! {
        /// Loom runs all threads of a model on the one that called it.
        static WEAK: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Makes the ordering of this name relaxed in models run by the calling thread.
    pub fn weaken(name: Option<&'static str>) {
        WEAK.set(name);
    }

    pub(super) fn is_weak(name: &str) -> bool {
        WEAK.get() == Some(name)
    }
}
