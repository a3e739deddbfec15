//! Necessary conditions for a packet to match a program, computed once: they keep most packets from
//! running through the program. For `tcp port 443 and host 198.51.100.7`, that is one of two
//! addresses.

use super::classic::{Instruction, code};
use hotloop_stage::tap::{Need, Needs};

/// A number at a fixed place in a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Number {
    /// The number's offset, and its length in bytes: 1, 2 or 4.
    offset: u32,
    bytes: usize,
    /// The required value.
    value: u32,
}

impl Number {
    /// Number of packets out of 2^32 that have the value, if all values are equally frequent.
    fn chance(self) -> u64 {
        1 << (32 - 8 * self.bytes)
    }

    fn need(self) -> Need {
        let word = |value: u32| {
            let mut word = [0; 4];
            word[..self.bytes].copy_from_slice(&value.to_be_bytes()[4 - self.bytes..]);
            u32::from_le_bytes(word)
        };
        Need { offset: self.offset, mask: word(u32::MAX), value: word(self.value) }
    }
}

/// Any one of these numbers is needed: if the list is empty, nothing matches. `None` if unknown.
type Needed = Option<Vec<Number>>;

/// Two needs, for a program that only jumps forward. Every packet that matches meets one of them.
/// `None` if there are more.
pub fn needs(program: &[Instruction]) -> Option<Needs> {
    match needed(program)?[..] {
        [one] => Some(Needs::either([one.need(); 2])),
        [one, other] => Some(Needs::either([one.need(), other.need()])),
        _ => None,
    }
}

fn needed(program: &[Instruction]) -> Needed {
    let loads = loads(program);
    // For each instruction, the numbers needed from there on. Beyond the end, nothing matches.
    let mut all: Vec<Needed> = vec![Some(Vec::new()); program.len() + 1];
    for (at, it) in program.iter().enumerate().rev() {
        let after = |skipped: u32| all.get(at + 1 + skipped as usize).cloned().unwrap_or_default();
        all[at] = match it.code {
            code::RET_K if it.k == 0 => Some(Vec::new()),
            code::RET_K | code::RET_A => None,
            code::JA => after(it.k),
            jump if jump & code::CLASS == code::JMP => {
                let [mut held, failed] = [it.skips.0, it.skips.1].map(|skip| after(skip.into()));
                if it.code == code::JEQ_K
                    && let Some((offset, bytes)) = loads[at]
                {
                    held = Some(better(vec![Number { offset, bytes, value: it.k }], held));
                }
                either(held, failed)
            }
            _ => after(0),
        };
    }
    all.swap_remove(0)
}

/// Of two needs that both hold, the one that fewer packets meet.
fn better(one: Vec<Number>, other: Needed) -> Vec<Number> {
    let chance = |numbers: &[Number]| numbers.iter().map(|number| number.chance()).sum::<u64>();
    match other {
        Some(other) if chance(&other) <= chance(&one) => other,
        _ => one,
    }
}

/// One number of either list.
fn either(some: Needed, others: Needed) -> Needed {
    let (mut all, others) = some.zip(others)?;
    all.extend(others.into_iter().filter(|need| !all.contains(need)).collect::<Vec<_>>());
    (all.len() <= 2).then_some(all)
}

/// For each instruction, the place in the packet that A was loaded from, as an offset and a number
/// of bytes. `None` if that differs between paths, or if A was computed.
fn loads(program: &[Instruction]) -> Vec<Option<(u32, usize)>> {
    /// The content of A before an instruction.
    #[derive(Clone, Copy, PartialEq)]
    enum A {
        Unreached,
        At(Option<(u32, usize)>),
    }
    let mut before = vec![A::Unreached; program.len() + 1];
    before[0] = A::At(None);
    for (at, it) in program.iter().enumerate() {
        let after = match it.code {
            code::LD_W_ABS => A::At(Some((it.k, 4))),
            code::LD_H_ABS => A::At(Some((it.k, 2))),
            code::LD_B_ABS => A::At(Some((it.k, 1))),
            code::LDX_IMM | code::LDX_LEN | code::LDX_MSH | code::TAX => before[at],
            jump if jump & code::CLASS == code::JMP => before[at],
            _ => A::At(None),
        };
        let skips = match it.code {
            code::RET_K | code::RET_A => continue,
            code::JA => [it.k as usize; 2],
            jump if jump & code::CLASS == code::JMP => [it.skips.0.into(), it.skips.1.into()],
            _ => [0; 2],
        };
        for skip in skips {
            if let Some(next) = before.get_mut(at + 1 + skip) {
                *next = if *next == A::Unreached || *next == after { after } else { A::At(None) };
            }
        }
    }
    let known = |a| if let A::At(load) = a { load } else { None };
    before.into_iter().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Eal;
    use crate::bpf::Filter;

    /// The needs of an expression as offset, bytes and value.
    fn of(expression: &str) -> Vec<(u32, usize, u32)> {
        let eal = Eal::embedded_or_current().expect("EAL starts anywhere");
        let filter = Filter::compile(eal, expression).unwrap();
        let needed = needed(&filter.program).unwrap_or_default();
        needed.iter().map(|need| (need.offset, need.bytes, need.value)).collect()
    }

    #[test]
    fn what_fewest_packets_have_is_needed() {
        let host = 0xC633_6407;
        assert_eq!(of("tcp port 443 and host 198.51.100.7"), [(26, 4, host), (30, 4, host)]);
        assert_eq!(of("src host 198.51.100.7 and udp"), [(26, 4, host)]);
        assert_eq!(of("arp"), [(12, 2, 0x806)]);
        assert_eq!(of("arp or ip6"), [(12, 2, 0x806), (12, 2, 0x86DD)]);
        assert_eq!(of("ether dst 02:00:00:00:09:02"), [(2, 4, 0x902)]);
    }

    #[test]
    fn where_packets_match_in_many_ways_nothing_is_needed() {
        for expression in ["", "not arp", "greater 100", "ip[8] % 3 = 1 or len = 7"] {
            assert_eq!(of(expression), [], "{expression}");
        }
        assert_eq!(of("ether[30] = 1 or ether[30] = 2 or ether[31] = 1"), []);
    }

    #[test]
    fn a_number_is_met_by_its_bytes_alone() {
        let needs = Needs::either([Number { offset: 1, bytes: 2, value: 0x0102 }.need(); 2]);
        assert!(needs.are_met(&[9, 1, 2, 9, 9]) && !needs.are_met(&[9, 2, 1, 9, 9]));
        // Too short to decide, because four bytes are read.
        assert!(needs.are_met(&[9, 2, 1, 9]));
    }
}
