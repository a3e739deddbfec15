//! Owned slices in an arena.

use std::mem::MaybeUninit;

use allocator_api2::alloc::Layout;
use allocator_api2::boxed::Box;
use zerocopy::FromZeros;

use crate::arena::{Arena, LINE_BYTES, taken_bytes};
use crate::error::ArenaError;

/// An owned value in an arena, usually a slice: `ArenaBox<[T]>`.
///
/// Use it like a `Box<[T]>`: it dereferences to its slice, drops its elements, and can be moved and
/// shared between threads if `T` can. It has no lifetime: it holds a handle of the arena, which
/// keeps the region alive. Dropping it returns the memory to the arena.
///
/// Made by [`Arena::boxed_zeroed`] and [`Arena::boxed_uninit`]. Cloning it also allocates, and
/// aborts the process if there is no room: prefer these two, which return an error.
pub type ArenaBox<T> = Box<T, Arena>;

impl Arena {
    /// `count` elements of all zero bytes, even if the memory was used before.
    ///
    /// Writes them, so that the memory is populated now even if the arena was not prefaulted.
    ///
    /// # Errors
    /// [`ArenaError::NoRoom`]: no free piece is large enough.
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), hotloop_arena::ArenaError> {
    /// let arena = hotloop_arena::Arena::on(None)?;
    /// let mut seen = arena.boxed_zeroed::<u64>(1_000)?;
    /// drop(arena); // `seen` keeps the region
    /// seen[999] += 1;
    /// assert_eq!(seen.iter().sum::<u64>(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn boxed_zeroed<T: FromZeros>(&self, count: usize) -> Result<ArenaBox<[T]>, ArenaError> {
        let zeroed = Box::<[T], _>::try_new_zeroed_slice_in(count, self.clone());
        let zeroed = zeroed.map_err(|_| self.no_room::<T>(count))?;
        // SAFETY: 1. All bytes of the elements are 0: the constructor above promises that, and
        // implements it with `Allocator::allocate_zeroed`, whose provided form writes the whole
        // block. 2. All zero bytes are a valid `T`, by its `FromZeros`.
        Ok(unsafe { zeroed.assume_init() })
    }

    /// Room for `count` elements, not initialised.
    ///
    /// # Errors
    /// [`ArenaError::NoRoom`]: no free piece is large enough.
    pub fn boxed_uninit<T>(&self, count: usize) -> Result<ArenaBox<[MaybeUninit<T>]>, ArenaError> {
        let room = Box::<[T], _>::try_new_uninit_slice_in(count, self.clone());
        room.map_err(|_| self.no_room::<T>(count))
    }

    fn no_room<T>(&self, count: usize) -> ArenaError {
        // For a higher alignment than every piece has, its first bytes may have to be skipped.
        let skipped_bytes = align_of::<T>().saturating_sub(LINE_BYTES);
        let taken_bytes = Layout::array::<T>(count).ok().and_then(taken_bytes);
        let needed_bytes = taken_bytes.unwrap_or(usize::MAX).saturating_add(skipped_bytes);
        ArenaError::NoRoom { needed_bytes, free_bytes_max: self.free_bytes_max() }
    }
}
