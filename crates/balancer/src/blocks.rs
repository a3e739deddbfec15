//! Blocked clients: the prefixes that an operator listed, in the form that workers search.
//! Immutable; uses nothing but addresses. Ranges are sorted and never overlap, so a search is
//! bounded.

use crate::prefix::{Prefix, bits, mask_v4};
use std::net::IpAddr;

/// Maximum number of blocked prefixes.
pub const BLOCKS_MAX: usize = 16_384;

/// A set of prefixes, of either IP version: a test is a binary search, so at most 14 comparisons
/// with [`BLOCKS_MAX`] prefixes.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

impl Blocks {
    /// Makes the set of these prefixes, which may contain each other.
    #[must_use]
    pub fn new(prefixes: impl IntoIterator<Item = Prefix>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for prefix in prefixes {
            let (first, len) = (bits(prefix.network()), prefix.len());
            match prefix.network() {
                IpAddr::V4(_) => v4.push((first as u32, first as u32 | !mask_v4(len))),
                IpAddr::V6(_) => {
                    v6.push((first, first | u128::MAX.checked_shr(len.into()).unwrap_or(0)));
                }
            }
        }
        Self { v4: Ranges::new(v4), v6: Ranges::new(v6) }
    }

    /// Whether `address` lies in one of the prefixes.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.contains(address.to_bits()),
            IpAddr::V6(address) => self.v6.contains(address.to_bits()),
        }
    }
}

/// Ranges of addresses, each from its first to its last.
///
/// Invariant: in ascending order, without overlaps.
#[derive(Clone, Debug, Default)]
struct Ranges<T>(Box<[(T, T)]>);

impl<T: Copy + Ord> Ranges<T> {
    fn new(mut ranges: Vec<(T, T)>) -> Self {
        ranges.sort_unstable();
        ranges.dedup_by(|next, before| {
            let overlaps = next.0 <= before.1;
            if overlaps {
                before.1 = before.1.max(next.1);
            }
            overlaps
        });
        Self(ranges.into())
    }

    fn contains(&self, address: T) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= address);
        after.checked_sub(1).is_some_and(|index| address <= self.0[index].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::testing::Rng;

    fn blocks(prefixes: &[&str]) -> Blocks {
        Blocks::new(prefixes.iter().map(|prefix| prefix.parse().unwrap()))
    }

    #[test]
    fn each_prefix_is_blocked_from_its_first_to_its_last_address() {
        let set = blocks(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7", "2001:db8::/32", "::5"]);
        for blocked in
            ["10.0.0.0", "10.255.255.255", "192.0.2.7", "2001:db8::", "2001:db8:ffff::1", "::5"]
        {
            assert!(set.contains(blocked.parse().unwrap()), "{blocked}");
        }
        for free in ["9.255.255.255", "11.0.0.0", "192.0.2.6", "192.0.2.8", "2001:db9::", "::6"] {
            assert!(!set.contains(free.parse().unwrap()), "{free}");
        }
        assert!(!blocks(&[]).contains("10.0.0.1".parse().unwrap()));
        let all = blocks(&["0.0.0.0/0", "::/0"]);
        for address in ["0.0.0.0", "255.255.255.255", "::", "ffff::"] {
            assert!(all.contains(address.parse().unwrap()), "{address}");
        }
        assert!(!blocks(&["0.0.0.0/0"]).contains("::".parse().unwrap()), "one version alone");
    }

    #[test]
    fn a_set_holds_what_any_of_its_prefixes_holds() {
        let mut rng = Rng::seeded(11);
        for _ in 0..200 {
            let prefixes: Vec<_> = (0..20)
                .map(|_| {
                    let address = std::net::Ipv4Addr::from_bits(rng.next_u64() as u32 & 0xFFFF);
                    Prefix::of(address.into(), 16 + (rng.next_u64() % 17) as u8)
                })
                .collect();
            let set = Blocks::new(prefixes.iter().copied());
            for address in (0..=0xFFFF_u32).step_by(7) {
                let address = std::net::Ipv4Addr::from_bits(address).into();
                let is_in_any = prefixes.iter().any(|prefix| prefix.contains(address));
                assert_eq!(set.contains(address), is_in_any, "{address} in {prefixes:?}");
            }
        }
    }
}
