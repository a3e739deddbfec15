//! Programs of classic BPF, which libpcap compiles expressions to: "The BSD Packet Filter", McCanne and
//! Jacobson, 1993, has the instructions.
//!
//! They are run here where they are not fit for DPDK. Of 22.11, as it is in Debian 12, and of what later
//! versions have not changed:
//!
//! - The compiler for x86 writes the mask of a test of bits, where it is below 128, in one byte instead of
//!   four: what follows is run from the midst of an instruction.
//! - Offsets and lengths are added in 32 bits without a look at the carry: a load at an offset from the packet
//!   of nearly 2^32 reads elsewhere, or ends the process. A packet's sender chooses that offset where an
//!   expression has one that was computed (`ether[ip[4:4]]`), or where a packet is shorter than
//!   the expression takes it for (`ether[len - 4:4]`).
//! - The verifier follows each way through a program, of which there may be more than anybody waits for.
//! - Programs that loop (`protochain`) are not converted.

use hotloop_stage::tap::Seen;

/// How many ways through a program DPDK is asked to verify.
const WAY_COUNT_MAX: u64 = 1 << 16;

/// The largest offset into a packet that is left to DPDK.
const OFFSET_MAX: u32 = 1 << 24;

/// The smallest mask that DPDK's compiler for x86 writes in four bytes.
const MASK_MIN: u32 = 128;

/// How many instructions a run takes at most. One that loops over the headers of the longest packet takes
/// fewer; one that takes more does not match.
const STEP_COUNT_MAX: usize = 1 << 20;

/// The number of words of a program's memory.
const MEMORY_WORDS: usize = 16;

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    pub code: u16,
    /// How many instructions are skipped where its condition holds, and where it does not.
    pub skips: (u8, u8),
    pub k: u32,
}

/// Codes of instructions, as bpf.h composes them.
mod code {
    pub const LD_W_ABS: u16 = 0x20;
    pub const LD_H_ABS: u16 = 0x28;
    pub const LD_B_ABS: u16 = 0x30;
    pub const LD_W_IND: u16 = 0x40;
    pub const LD_H_IND: u16 = 0x48;
    pub const LD_B_IND: u16 = 0x50;
    pub const LD_IMM: u16 = 0x00;
    pub const LD_MEM: u16 = 0x60;
    pub const LD_LEN: u16 = 0x80;
    pub const LDX_IMM: u16 = 0x01;
    pub const LDX_MEM: u16 = 0x61;
    pub const LDX_LEN: u16 = 0x81;
    pub const LDX_MSH: u16 = 0xB1;
    pub const ST: u16 = 0x02;
    pub const STX: u16 = 0x03;
    pub const TAX: u16 = 0x07;
    pub const TXA: u16 = 0x87;
    pub const RET_K: u16 = 0x06;
    pub const RET_A: u16 = 0x16;
    pub const JA: u16 = 0x05;
    pub const JSET_K: u16 = 0x45;
    /// The classes, in three bits.
    pub const CLASS: u16 = 0x07;
    pub const ALU: u16 = 0x04;
    pub const JMP: u16 = 0x05;
    /// Whether the operand is X.
    pub const X: u16 = 0x08;
    /// The operation, of the classes ALU and JMP.
    pub const OPERATION: u16 = 0xF0;
}

/// Runs a program. Returns whether the packet matches.
pub fn matches(program: &[Instruction], seen: &Seen<'_>) -> bool {
    let mut machine = Machine { a: 0, x: 0, memory: [0; MEMORY_WORDS], seen };
    let mut at = 0;
    for _ in 0..STEP_COUNT_MAX {
        let Some(it) = program.get(at) else { return false };
        match it.code {
            code::RET_K => return it.k != 0,
            code::RET_A => return machine.a != 0,
            code::JA => at = at.wrapping_add_signed(it.k.cast_signed() as isize),
            jump if jump & code::CLASS == code::JMP => {
                let Some(holds) = machine.holds(it) else { return false };
                at += usize::from(if holds { it.skips.0 } else { it.skips.1 });
            }
            // A load beyond the packet ends a program, as does an instruction that there is not.
            _ if machine.step(it).is_none() => return false,
            _ => {}
        }
        at = at.wrapping_add(1);
    }
    false
}

/// The state of a run.
struct Machine<'a> {
    a: u32,
    x: u32,
    memory: [u32; MEMORY_WORDS],
    seen: &'a Seen<'a>,
}

impl Machine<'_> {
    fn operand(&self, it: &Instruction) -> u32 {
        if it.code & code::X == 0 { it.k } else { self.x }
    }

    /// Whether a condition holds; nothing where there is no such condition.
    fn holds(&self, it: &Instruction) -> Option<bool> {
        let operand = self.operand(it);
        Some(match it.code & code::OPERATION {
            0x10 => self.a == operand,
            0x20 => self.a > operand,
            0x30 => self.a >= operand,
            0x40 => self.a & operand != 0,
            _ => return None,
        })
    }

    /// Takes any other step; nothing where the program ends there.
    fn step(&mut self, it: &Instruction) -> Option<()> {
        let word = it.k as usize;
        let length = u32::try_from(self.seen.total_bytes).unwrap_or(u32::MAX);
        match it.code {
            code::LD_W_ABS => self.a = load(self.seen, it.k, 4)?,
            code::LD_H_ABS => self.a = load(self.seen, it.k, 2)?,
            code::LD_B_ABS => self.a = load(self.seen, it.k, 1)?,
            code::LD_W_IND => self.a = load(self.seen, self.x.checked_add(it.k)?, 4)?,
            code::LD_H_IND => self.a = load(self.seen, self.x.checked_add(it.k)?, 2)?,
            code::LD_B_IND => self.a = load(self.seen, self.x.checked_add(it.k)?, 1)?,
            code::LD_IMM => self.a = it.k,
            code::LD_MEM => self.a = *self.memory.get(word)?,
            code::LD_LEN => self.a = length,
            code::LDX_IMM => self.x = it.k,
            code::LDX_MEM => self.x = *self.memory.get(word)?,
            code::LDX_LEN => self.x = length,
            code::LDX_MSH => self.x = (load(self.seen, it.k, 1)? & 0x0F) * 4,
            code::ST => *self.memory.get_mut(word)? = self.a,
            code::STX => *self.memory.get_mut(word)? = self.x,
            code::TAX => self.x = self.a,
            code::TXA => self.a = self.x,
            _ if it.code & code::CLASS == code::ALU => self.a = self.computed(it)?,
            _ => return None,
        }
        Some(())
    }

    fn computed(&self, it: &Instruction) -> Option<u32> {
        let (a, operand) = (self.a, self.operand(it));
        Some(match it.code & code::OPERATION {
            0x00 => a.wrapping_add(operand),
            0x10 => a.wrapping_sub(operand),
            0x20 => a.wrapping_mul(operand),
            0x30 => a.checked_div(operand)?,
            0x40 => a | operand,
            0x50 => a & operand,
            // A shift by all bits or more leaves none.
            0x60 => a.checked_shl(operand).unwrap_or(0),
            0x70 => a.checked_shr(operand).unwrap_or(0),
            0x80 => a.wrapping_neg(),
            0x90 => a.checked_rem(operand)?,
            0xA0 => a ^ operand,
            _ => return None,
        })
    }
}

/// The number in `count` bytes at `offset`, over segments; nothing where the packet ends before.
fn load(seen: &Seen<'_>, offset: u32, count: usize) -> Option<u32> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    let mut offset = offset as usize;
    if let Some(bytes) = seen.bytes.get(offset..).and_then(|bytes| bytes.get(..count)) {
        return Some(number(bytes));
    }
    let (mut bytes, mut found) = ([0; 4], 0);
    seen.each_segment(usize::MAX, &mut |segment| {
        let rest = segment.get(offset..).unwrap_or_default();
        offset = offset.saturating_sub(segment.len());
        let taken = rest.len().min(count - found);
        bytes[found..found + taken].copy_from_slice(&rest[..taken]);
        found += taken;
    });
    (found == count).then(|| number(&bytes[..count]))
}

/// Whether DPDK runs a program rightly and safely, and verifies it soon.
pub fn is_fit_for_dpdk(program: &[Instruction]) -> bool {
    program.iter().all(is_fit) && way_count(program) <= WAY_COUNT_MAX
}

/// Offsets stay small: X is only what a header's length was, or a small number.
fn is_fit(it: &Instruction) -> bool {
    match it.code {
        code::LD_W_ABS | code::LD_H_ABS | code::LD_B_ABS => it.k <= OFFSET_MAX,
        code::LD_W_IND | code::LD_H_IND | code::LD_B_IND => it.k <= OFFSET_MAX,
        code::LDX_IMM | code::LDX_MSH => it.k <= OFFSET_MAX,
        code::LD_IMM | code::LD_LEN | code::LD_MEM | code::ST | code::TXA => true,
        code::RET_K | code::RET_A => true,
        code::JA => it.k.cast_signed() >= 0,
        code::JSET_K => it.k >= MASK_MIN,
        _ if it.code & code::CLASS == code::JMP => true,
        _ if it.code & code::CLASS == code::ALU => match it.code & code::OPERATION {
            // Sums, differences, and bits in common, in either, or in one.
            0x00 | 0x10 | 0x40 | 0x50 | 0xA0 => true,
            0x60 | 0x70 => it.code & code::X == 0 && it.k < u32::BITS,
            _ => false,
        },
        _ => false,
    }
}

/// How many ways lead through a program that jumps forward alone.
fn way_count(program: &[Instruction]) -> u64 {
    let mut counts = vec![1_u64; program.len() + 1];
    for (index, it) in program.iter().enumerate().rev() {
        let count = |skipped: usize| counts.get(index + 1 + skipped).copied().unwrap_or(1);
        counts[index] = match it.code {
            code::RET_K | code::RET_A => 1,
            code::JA => count(it.k as usize),
            jump if jump & code::CLASS == code::JMP && it.skips.0 != it.skips.1 => {
                count(it.skips.0.into()).saturating_add(count(it.skips.1.into()))
            }
            _ => count(0),
        };
    }
    counts[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETURN: Instruction = Instruction { code: code::RET_K, skips: (0, 0), k: 1 };

    #[test]
    fn ways_through_a_program_are_counted() {
        let jump = |when, or| Instruction { code: 0x15, skips: (when, or), k: 7 };
        assert_eq!(way_count(&[RETURN]), 1);
        assert_eq!(way_count(&[jump(0, 1), RETURN, RETURN]), 2);
        // Both ways of each branch meet again.
        let diamond = [jump(0, 1), jump(1, 1), jump(0, 0)];
        let diamonds = |count: usize| [diamond.repeat(count), vec![RETURN]].concat();
        assert_eq!(way_count(&diamonds(3)), 8);
        assert!(is_fit_for_dpdk(&diamonds(16)) && !is_fit_for_dpdk(&diamonds(17)));
        assert_eq!(way_count(&diamonds(300)), u64::MAX);
    }

    #[test]
    fn what_dpdk_runs_wrongly_is_not_left_to_it() {
        let fit = |code, k| is_fit_for_dpdk(&[Instruction { code, skips: (0, 0), k }, RETURN]);
        assert!(fit(code::JSET_K, 128) && !fit(code::JSET_K, 127) && !fit(code::JSET_K, 0));
        assert!(fit(code::LD_B_ABS, 12) && !fit(code::LD_B_ABS, u32::MAX));
        assert!(fit(code::LD_W_IND, 12) && !fit(code::LD_W_IND, u32::MAX - 3));
        for x_of_anything in [code::TAX, code::LDX_LEN, code::LDX_MEM] {
            assert!(!fit(x_of_anything, 0));
        }
        assert!(!fit(code::JA, u32::MAX) && !fit(0x3C, 0) && !fit(0xFF, 0));
        assert!(fit(0x64, 31) && !fit(0x64, 32));
    }
}
