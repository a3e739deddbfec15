//! The keys of one burst, and what is found for them, on their way through the stages of a lookup.

use std::mem::MaybeUninit;

use crate::table::BURST_KEYS_MAX;

const ROOM: usize = BURST_KEYS_MAX + 1;

/// Room for what is noted of the keys of a burst. It isn't cleared, which would cost more than to
/// use it.
pub(crate) type Room<T> = [MaybeUninit<T>; ROOM];

#[inline(always)]
pub(crate) const fn room<T: Copy>() -> Room<T> {
    [MaybeUninit::uninit(); ROOM]
}

/// Up to 64 notes. They are in a room of its owner's, so that the length is in a register.
pub(crate) struct List<'a, T> {
    /// How many of `room` are initialised, from the beginning.
    len: usize,
    room: &'a mut Room<T>,
}

impl<'a, T: Copy> List<'a, T> {
    #[inline(always)]
    pub(crate) fn new(room: &'a mut Room<T>) -> Self {
        Self { len: 0, room }
    }

    /// # Panics
    /// When it is full.
    #[inline(always)]
    pub(crate) fn push(&mut self, note: T) {
        self.room[self.len].write(note);
        self.len += 1;
    }

    /// Adds a note or doesn't, without a branch.
    #[inline(always)]
    pub(crate) fn push_if(&mut self, is_wanted: bool, note: T) {
        self.room[self.len].write(note);
        self.len += usize::from(is_wanted);
    }

    #[inline(always)]
    pub(crate) fn notes(&self) -> &[T] {
        // SAFETY: 1. The first `len` are initialised: each was written before it was counted.
        unsafe { self.room[..self.len].assume_init_ref() }
    }
}
