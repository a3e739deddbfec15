//! Items of many sizes that count their drops.

use std::cell::Cell;
use std::fmt::Debug;

/// Plain bytes that identify a number, as well as their size allows.
pub trait Payload: Copy + PartialEq + Debug + Send + 'static {
    fn of(number: u64) -> Self;
}

impl Payload for u8 {
    fn of(number: u64) -> Self {
        number as u8
    }
}

impl<const N: usize> Payload for [u64; N] {
    fn of(number: u64) -> Self {
        std::array::from_fn(|index| number.rotate_left(index as u32))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(16))]
pub struct Align16(u64);

impl Payload for Align16 {
    fn of(number: u64) -> Self {
        Self(number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(64))]
pub struct Align64(u8);

impl Payload for Align64 {
    fn of(number: u64) -> Self {
        Self(number as u8)
    }
}

/// Calls a generic function with payloads of 0, 1, 8, 16, 24, 56, 64 and 200 bytes, and of the
/// alignments 16 and 64.
#[macro_export]
macro_rules! for_each_payload {
    ($function:ident) => {
        $function::<[u64; 0]>();
        $function::<u8>();
        $function::<[u64; 1]>();
        $function::<[u64; 2]>();
        $function::<[u64; 3]>();
        $function::<[u64; 7]>();
        $function::<[u64; 8]>();
        $function::<[u64; 25]>();
        $function::<$crate::payload::Align16>();
        $function::<$crate::payload::Align64>();
    };
}

thread_local! {
    /// Number of items made on this thread minus those dropped on it.
    static ALIVE: Cell<i64> = const { Cell::new(0) };
}

/// Number of items made on the calling thread minus those dropped on it, over its life.
pub fn alive_count() -> i64 {
    ALIVE.get()
}

/// A payload that counts its drops without being a byte larger.
#[derive(Debug, PartialEq)]
pub struct Counted<P: Payload>(pub P);

impl<P: Payload> Counted<P> {
    pub fn of(number: u64) -> Self {
        ALIVE.set(ALIVE.get() + 1);
        Self(P::of(number))
    }
}

impl<P: Payload> Drop for Counted<P> {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
    }
}
