//! Maps and sets of prefixes, for longest matches on the packet path.

use super::Prefix;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A value for each of some prefixes, of both IP versions. [`get`](Self::get) returns the value of
/// the longest prefix that contains an address.
///
/// A map is made in one go, and doesn't change: collect another one, and publish it to the cores.
/// A lookup allocates nothing. It is a binary search among the ranges into which the prefixes divide
/// all addresses, at most two for each prefix and one more: 18 comparisons for 100,000 prefixes.
/// If a prefix is collected twice, its last value counts.
///
/// ```
/// use hotloop_packet::prefix::PrefixMap;
///
/// let hops: PrefixMap<&str> =
///     [("0.0.0.0/0".parse()?, "gateway"), ("10.0.0.0/8".parse()?, "office")].into_iter().collect();
/// assert_eq!(hops.get("10.1.2.3".parse()?), Some(&"office"));
/// assert_eq!(hops.get("192.0.2.1".parse()?), Some(&"gateway"));
/// assert_eq!(hops.get("2001:db8::1".parse()?), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PrefixMap<T> {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    values: Vec<T>,
}

/// All addresses of an IP version, in ranges: the first address of each, and the index of its value,
/// or [`NO_VALUE`]. Empty in a map that was never filled.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Ranges<A> {
    starts: Vec<A>,
    indices: Vec<u32>,
}

const NO_VALUE: u32 = u32::MAX;

impl<A: Copy + Ord> Ranges<A> {
    const EMPTY: Self = Self { starts: Vec::new(), indices: Vec::new() };

    #[inline]
    fn find(&self, address: A) -> Option<usize> {
        let after = self.starts.partition_point(|start| *start <= address);
        self.indices.get(after.checked_sub(1)?).map(|index| *index as usize)
    }

    /// Makes the ranges that begin at these addresses. Adjacent ranges with the same value become
    /// one.
    fn new(mut starts: Vec<A>, mut index_of: impl FnMut(A) -> u32) -> Self {
        starts.sort_unstable();
        starts.dedup();
        let mut ranges = Self::EMPTY;
        for start in starts {
            let index = index_of(start);
            if ranges.indices.last() != Some(&index) {
                ranges.starts.push(start);
                ranges.indices.push(index);
            }
        }
        ranges
    }
}

impl<T> PrefixMap<T> {
    /// Makes the map of a function that has one value for all addresses between two neighbouring
    /// ends of `prefixes`, such as a lookup in several tables, one after the other. Equal values are
    /// stored once.
    pub fn from_fn(
        prefixes: impl IntoIterator<Item = Prefix>,
        mut value_of: impl FnMut(IpAddr) -> T,
    ) -> Self
    where
        T: Clone + Eq + Hash,
    {
        let (mut values, mut indices) = (Vec::new(), HashMap::new());
        let index_of = |address| {
            let value = value_of(address);
            *indices.entry(value).or_insert_with_key(|value| {
                values.push(value.clone());
                values.len() as u32 - 1
            })
        };
        let (v4, v6) = ranges(prefixes, index_of);
        Self { v4, v6, values }
    }

    /// Returns the value of the longest prefix that contains `address`, or `None` if none does.
    #[inline]
    #[must_use]
    pub fn get(&self, address: IpAddr) -> Option<&T> {
        let index = match address {
            IpAddr::V4(address) => self.v4.find(address.to_bits()),
            IpAddr::V6(address) => self.v6.find(address.to_bits()),
        };
        self.values.get(index?)
    }

    /// The values, in the order in which they were collected.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter()
    }
}

/// The ranges between the ends of the prefixes, with the indices of their values. `index_of` is
/// called with the first address of each range, in ascending order, IPv4 first.
fn ranges(
    prefixes: impl IntoIterator<Item = Prefix>,
    mut index_of: impl FnMut(IpAddr) -> u32,
) -> (Ranges<u32>, Ranges<u128>) {
    let (mut v4, mut v6) = (vec![0], vec![0]);
    for prefix in prefixes {
        match (prefix.network(), prefix.last()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                v4.extend([Some(first.to_bits()), last.to_bits().checked_add(1)].iter().flatten());
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                v6.extend([Some(first.to_bits()), last.to_bits().checked_add(1)].iter().flatten());
            }
            _ => unreachable!("the ends of a prefix are of its IP version"),
        }
    }
    let v4 = Ranges::new(v4, |bits| index_of(Ipv4Addr::from_bits(bits).into()));
    (v4, Ranges::new(v6, |bits| index_of(Ipv6Addr::from_bits(bits).into())))
}

impl<T> Default for PrefixMap<T> {
    fn default() -> Self {
        Self { v4: Ranges::EMPTY, v6: Ranges::EMPTY, values: Vec::new() }
    }
}

impl<T> FromIterator<(Prefix, T)> for PrefixMap<T> {
    fn from_iter<I: IntoIterator<Item = (Prefix, T)>>(entries: I) -> Self {
        let (prefixes, values): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        let (v4, v6) = longest(&prefixes, |at| at as u32);
        Self { v4, v6, values }
    }
}

/// A set of prefixes, of both IP versions, which may contain each other. A test costs what
/// [`PrefixMap::get`] does.
///
/// ```
/// use hotloop_packet::prefix::PrefixSet;
///
/// let blocked: PrefixSet = ["192.0.2.7".parse()?, "2001:db8::/32".parse()?].into_iter().collect();
/// assert!(blocked.contains("2001:db8::1".parse()?));
/// assert!(!blocked.contains("192.0.2.8".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PrefixSet(PrefixMap<()>);

impl PrefixSet {
    /// Returns whether one of the prefixes contains `address`.
    #[inline]
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.get(address).is_some()
    }
}

impl FromIterator<Prefix> for PrefixSet {
    fn from_iter<I: IntoIterator<Item = Prefix>>(prefixes: I) -> Self {
        let prefixes: Vec<_> = prefixes.into_iter().collect();
        // All have the same value, so that prefixes side by side are one range.
        let (v4, v6) = longest(&prefixes, |_| 0);
        Self(PrefixMap { v4, v6, values: vec![()] })
    }
}

/// The ranges of the longest matches. `index_of` is called with a prefix's place in the list.
fn longest(prefixes: &[Prefix], index_of: impl Fn(usize) -> u32) -> (Ranges<u32>, Ranges<u128>) {
    // A prefix comes before those in it. The sort is stable: the last of equal prefixes counts.
    let mut order: Vec<usize> = (0..prefixes.len()).collect();
    order.sort_by_key(|at| prefixes[*at]);
    let mut ahead = order.into_iter().peekable();
    // The prefixes that contain the address, the longest last, and some that ended before it.
    let mut open: Vec<usize> = Vec::new();
    ranges(prefixes.iter().copied(), |address| {
        while let Some(next) = ahead.next_if(|at| prefixes[*at].network() <= address) {
            open.push(next);
        }
        while open.pop_if(|at| !prefixes[*at].contains(address)).is_some() {}
        open.last().map_or(NO_VALUE, |at| index_of(*at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Prefixes that often contain each other, of the addresses 10.0.0.0 to 10.0.15.255 and
    /// 2001:db8:: to 2001:db8::fff, and some that are long or short.
    fn prefix() -> impl Strategy<Value = Prefix> {
        let len = prop_oneof![8 => 20u8..=32, 1 => 0u8..=20];
        (any::<bool>(), any::<u16>(), len).prop_map(|(is_v6, number, len)| {
            let address = address(is_v6, number);
            Prefix::of(address, if is_v6 && len > 0 { len + 96 } else { len })
        })
    }

    fn address(is_v6: bool, number: u16) -> IpAddr {
        let low = number & 0xfff;
        if is_v6 {
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, low).into()
        } else {
            Ipv4Addr::from_bits(0x0a00_0000 | u32::from(low)).into()
        }
    }

    fn set(prefixes: &[&str]) -> PrefixSet {
        prefixes.iter().map(|prefix| prefix.parse::<Prefix>().unwrap()).collect()
    }

    #[test]
    fn a_set_holds_each_prefix_from_its_first_to_its_last_address() {
        let five = set(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7", "2001:db8::/32", "::5"]);
        for inside in
            ["10.0.0.0", "10.255.255.255", "192.0.2.7", "2001:db8::", "2001:db8:ffff::1", "::5"]
        {
            assert!(five.contains(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["9.255.255.255", "11.0.0.0", "192.0.2.6", "192.0.2.8", "2001:db9::", "::6"]
        {
            assert!(!five.contains(outside.parse().unwrap()), "{outside}");
        }
        assert!(!set(&[]).contains("10.0.0.1".parse().unwrap()));
        let all = set(&["0.0.0.0/0", "::/0"]);
        for address in ["0.0.0.0", "255.255.255.255", "::", "ffff::"] {
            assert!(all.contains(address.parse().unwrap()), "{address}");
        }
        assert!(!set(&["0.0.0.0/0"]).contains("::".parse().unwrap()), "one version alone");
        assert_eq!(set(&["10.0.0.0/9", "10.128.0.0/9"]), set(&["10.0.0.0/8", "10.7.0.0/16"]));
    }

    #[test]
    fn a_map_without_prefixes_finds_nothing() {
        let none: [PrefixMap<u8>; 2] = [PrefixMap::default(), [].into_iter().collect()];
        for map in none {
            for address in ["0.0.0.0", "255.255.255.255", "::", "ffff::"] {
                assert_eq!(map.get(address.parse().unwrap()), None);
            }
        }
    }

    proptest! {
        /// Compares with a linear search for the longest prefix, at both ends of each prefix and
        /// beside them.
        #[test]
        fn the_longest_prefix_is_found(
            entries in prop::collection::vec((prefix(), any::<u8>()), 0..40),
            numbers in prop::collection::vec(any::<(bool, u16)>(), 20),
        ) {
            let map: PrefixMap<u8> = entries.iter().copied().collect();
            let set: PrefixSet = entries.iter().map(|(prefix, _)| *prefix).collect();
            let expected = |address| {
                let of_address = entries.iter().filter(|(prefix, _)| prefix.contains(address));
                of_address.max_by_key(|(prefix, _)| prefix.len()).map(|(_, value)| value)
            };
            let by_function = PrefixMap::from_fn(
                entries.iter().map(|(prefix, _)| *prefix),
                |address| expected(address).copied(),
            );
            let ends = entries.iter().flat_map(|(prefix, _)| [prefix.network(), prefix.last()]);
            let around = ends.flat_map(|end| match end {
                IpAddr::V4(end) => [-1, 0, 1].map(|step| {
                    Ipv4Addr::from_bits(end.to_bits().wrapping_add_signed(step)).into()
                }),
                IpAddr::V6(end) => [-1, 0, 1].map(|step| {
                    Ipv6Addr::from_bits(end.to_bits().wrapping_add_signed(step.into())).into()
                }),
            });
            let any = numbers.iter().map(|(is_v6, number)| address(*is_v6, *number));
            for address in around.chain(any) {
                prop_assert_eq!(map.get(address), expected(address), "{}", address);
                prop_assert_eq!(by_function.get(address), Some(&expected(address).copied()));
                prop_assert_eq!(set.contains(address), expected(address).is_some());
            }
        }
    }
}
