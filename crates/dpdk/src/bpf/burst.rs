//! Runs a program for the packets of a burst together: each instruction runs for all packets that
//! have reached it. Instructions are decoded once for all packets, and the packets' loads don't
//! wait for each other.

use super::classic::{Instruction, MEMORY_WORDS, Machine, code, load, number};
use hotloop_stage::Burst;
use hotloop_stage::tap::Seen;

/// Number of packets that run together: fewer than a [`Burst`] holds, so that waiting packets find
/// room there.
const LANES: usize = 32;

/// The bit of each lane.
const BITS: [u32; LANES] = {
    let mut bits = [1; LANES];
    let mut index = 1;
    while index < LANES {
        bits[index] = 1 << index;
        index += 1;
    }
    bits
};

/// Whether the packets of a burst can run through a program together: it only jumps forward, and
/// doesn't use memory.
pub fn is_for_bursts(program: &[Instruction]) -> bool {
    program.iter().all(|instruction| match instruction.code {
        code::JA => instruction.k.cast_signed() >= 0,
        code::LD_MEM | code::LDX_MEM | code::ST | code::STX => false,
        _ => true,
    })
}

/// Returns the packets that match, out of at most 64: bit `i` for `packets[i]`. The program must be
/// [for bursts](is_for_bursts).
pub fn select(program: &[Instruction], packets: &[Seen<'_>]) -> u64 {
    let parts = packets.chunks(LANES).enumerate();
    let selected = |(index, part)| {
        let lanes = Lanes { packets: part, a: [0; LANES], x: [0; LANES] };
        u64::from(lanes.run(program)) << (index * LANES)
    };
    parts.map(selected).fold(0, |all, part| all | part)
}

/// The state of a run. Sets of packets are masks: bit `i` for `packets[i]`.
struct Lanes<'a> {
    packets: &'a [Seen<'a>],
    a: [u32; LANES],
    x: [u32; LANES],
}

impl Lanes<'_> {
    /// Returns the packets that match.
    fn run(mut self, program: &[Instruction]) -> u32 {
        let (mut at, mut here, mut selected) = (0, self.all(), 0);
        // At a branch, the packets that jump wait here. No two sets have a packet in common.
        let mut waiting = Burst::<(usize, u32)>::new();
        while let Some(it) = program.get(at) {
            at += 1;
            match it.code {
                code::RET_K => {
                    selected |= if it.k == 0 { 0 } else { here };
                    here = 0;
                }
                code::RET_A => {
                    selected |= here & self.with_a(|a| a != 0);
                    here = 0;
                }
                code::JA => at += it.k as usize,
                jump if jump & code::CLASS == code::JMP => {
                    let holding = self.holding(it, here);
                    let skipping = [holding, here & !holding].map(|set| (set != 0, set));
                    let [(holds, held), (fails, failed)] = skipping;
                    if holds && fails {
                        waiting.push((at + usize::from(it.skips.1), failed));
                    }
                    at += usize::from(if holds { it.skips.0 } else { it.skips.1 });
                    here = if holds { held } else { failed };
                }
                code::LD_W_ABS => here = self.load::<4>(it.k, here),
                code::LD_H_ABS => here = self.load::<2>(it.k, here),
                code::LD_B_ABS => here = self.load::<1>(it.k, here),
                _ => here = self.each(here, |machine| machine.step(it).is_some()),
            }
            if here == 0 {
                let Some(next) = waiting.pop() else { break };
                (at, here) = next;
            }
        }
        selected
    }

    fn all(&self) -> u32 {
        u32::MAX.checked_shr((LANES - self.packets.len()) as u32).unwrap_or(0)
    }

    /// Loads bytes at an offset into A. Returns the packets that are long enough; the others don't
    /// match.
    #[inline(always)]
    fn load<const BYTES: usize>(&mut self, offset: u32, here: u32) -> u32 {
        let range = offset as usize..offset as usize + BYTES;
        let mut elsewhere = 0;
        if here == self.all() {
            for (index, (seen, a)) in self.packets.iter().zip(&mut self.a).enumerate() {
                match seen.bytes.get(range.clone()) {
                    Some(bytes) => *a = number(bytes),
                    None => elsewhere = with(elsewhere, index),
                }
            }
        } else {
            for index in ones(here) {
                match self.packets[index].bytes.get(range.clone()) {
                    Some(bytes) => self.a[index] = number(bytes),
                    None => elsewhere = with(elsewhere, index),
                }
            }
        }
        if elsewhere == 0 { here } else { self.load_elsewhere((offset, BYTES), here, elsewhere) }
    }

    /// [`load`](Self::load), for packets whose first segment does not have the bytes.
    #[cold]
    fn load_elsewhere(
        &mut self,
        (offset, count): (u32, usize),
        mut here: u32,
        elsewhere: u32,
    ) -> u32 {
        for index in ones(elsewhere) {
            match load(&self.packets[index], offset, count) {
                Some(number) => self.a[index] = number,
                None => here &= !(1 << index),
            }
        }
        here
    }

    /// The packets for which the condition of a jump holds.
    fn holding(&mut self, it: &Instruction, here: u32) -> u32 {
        let k = it.k;
        here & match it.code {
            code::JEQ_K => self.with_a(|a| a == k),
            code::JGT_K => self.with_a(|a| a > k),
            code::JGE_K => self.with_a(|a| a >= k),
            code::JSET_K => self.with_a(|a| a & k != 0),
            _ => self.each(here, |machine| machine.holds(it)),
        }
    }

    /// The lanes with an A that fulfils a condition, including lanes without a packet. Not inlined,
    /// so that each condition is a function of its own: inlining would break up the vector
    /// comparisons.
    #[inline(never)]
    fn with_a(&self, holds: impl Fn(u32) -> bool) -> u32 {
        // In this form, four comparisons are done at a time.
        let bits = self.a.iter().zip(&BITS).map(|(a, bit)| if holds(*a) { *bit } else { 0 });
        bits.fold(0, |mask, bit| mask | bit)
    }

    /// Calls `act` for one packet after another. Returns the packets for which `act` returned true.
    fn each(&mut self, here: u32, mut act: impl FnMut(&mut Machine<'_>) -> bool) -> u32 {
        let (mut held, memory) = (0, &mut [0; MEMORY_WORDS]);
        for index in ones(here) {
            let (a, x, seen) = (self.a[index], self.x[index], &self.packets[index]);
            let mut machine = Machine { a, x, memory, seen };
            held |= u32::from(act(&mut machine)) << index;
            (self.a[index], self.x[index]) = (machine.a, machine.x);
        }
        held
    }
}

/// The mask with one more bit. Separate from the code that loads bytes, to keep that small.
#[cold]
fn with(mask: u32, index: usize) -> u32 {
    mask | 1 << index
}

/// The bits that are set, from the lowest.
#[inline(always)]
fn ones(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = (mask != 0).then(|| mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        index
    })
}
