//! Packets that are numbers, and their stages: for tests of everything around an engine.
#![allow(dead_code, reason = "each test program uses a part of it")]

use hotloop_stage::{Burst, Carries, Cx, Sink, Stage, Verdict, drop_reasons};

/// A packet.
pub struct Number(pub u64);

impl Carries for Number {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

drop_reasons! { pub enum Odd { Odd = "odd", Never = "never" } }

/// Drops odd numbers.
pub struct Even;

impl Stage<Number> for Even {
    type Out = Number;
    type Drop = Odd;

    fn packet(&mut self, cx: &mut Cx<'_, Odd>, number: Number) -> Verdict<Number> {
        match number.0 {
            u64::MAX => cx.drop(number, Odd::Never),
            odd if odd % 2 == 1 => cx.drop(number, Odd::Odd),
            _ => Ok(number),
        }
    }
}

/// A sink that takes everything.
pub struct Nothing;

impl Sink for Nothing {
    type Item = Number;

    fn send(&mut self, burst: &mut Burst<Number>) -> usize {
        let count = burst.len();
        burst.clear();
        count
    }
}
