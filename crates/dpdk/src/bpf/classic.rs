//! Programs of classic BPF, the output of libpcap's compiler. The instructions are defined in "The
//! BSD Packet Filter", McCanne and Jacobson, 1993.

use hotloop_stage::tap::Seen;

/// Maximum number of instructions of a run. A program that loops over the headers of the longest
/// packet needs fewer. A program that exceeds it does not match.
const STEP_COUNT_MAX: usize = 1 << 20;

/// The number of words of a program's memory.
pub const MEMORY_WORDS: usize = 16;

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    pub code: u16,
    /// Number of instructions to skip if the condition holds, and if it doesn't.
    pub skips: (u8, u8),
    pub k: u32,
}

/// Codes of instructions, as bpf.h composes them.
pub mod code {
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
    pub const JEQ_K: u16 = 0x15;
    pub const JGT_K: u16 = 0x25;
    pub const JGE_K: u16 = 0x35;
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
    let mut machine = Machine { a: 0, x: 0, memory: &mut [0; MEMORY_WORDS], seen };
    let mut at = 0;
    for _ in 0..STEP_COUNT_MAX {
        let Some(it) = program.get(at) else { return false };
        match it.code {
            code::RET_K => return it.k != 0,
            code::RET_A => return machine.a != 0,
            code::JA => at = at.wrapping_add_signed(it.k.cast_signed() as isize),
            jump if jump & code::CLASS == code::JMP => {
                at += usize::from(if machine.holds(it) { it.skips.0 } else { it.skips.1 });
            }
            // A program ends at a load beyond the packet, and at an unknown instruction.
            _ if machine.step(it).is_none() => return false,
            _ => {}
        }
        at = at.wrapping_add(1);
    }
    false
}

/// The state of a run.
pub struct Machine<'a> {
    pub a: u32,
    pub x: u32,
    pub memory: &'a mut [u32; MEMORY_WORDS],
    pub seen: &'a Seen<'a>,
}

impl Machine<'_> {
    fn operand(&self, it: &Instruction) -> u32 {
        if it.code & code::X == 0 { it.k } else { self.x }
    }

    /// Whether the condition of a jump holds. An unknown condition never does.
    pub fn holds(&self, it: &Instruction) -> bool {
        let operand = self.operand(it);
        match it.code & code::OPERATION {
            0x10 => self.a == operand,
            0x20 => self.a > operand,
            0x30 => self.a >= operand,
            0x40 => self.a & operand != 0,
            _ => false,
        }
    }

    /// Executes an instruction other than a jump. Returns `None` if the program ends there.
    pub fn step(&mut self, it: &Instruction) -> Option<()> {
        let word = it.k as usize;
        let length = u32::try_from(self.seen.total_bytes()).unwrap_or(u32::MAX);
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
            // A shift by all bits or more leaves 0.
            0x60 => a.checked_shl(operand).unwrap_or(0),
            0x70 => a.checked_shr(operand).unwrap_or(0),
            0x80 => a.wrapping_neg(),
            0x90 => a.checked_rem(operand)?,
            0xA0 => a ^ operand,
            _ => return None,
        })
    }
}

/// The number in `count` bytes at `offset`, over segments. `None` if the packet ends before.
pub fn load(seen: &Seen<'_>, offset: u32, count: usize) -> Option<u32> {
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

/// The number in bytes in network order.
#[inline(always)]
pub fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}
