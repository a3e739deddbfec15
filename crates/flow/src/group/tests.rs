use super::*;

/// The expected result: compares one byte after the other.
fn one_by_one(group: &Group, tag: u8) -> u32 {
    (0..GROUP_SLOTS).filter(|&slot| group.0[slot] == tag).map(|slot| 1 << slot).sum()
}

fn check(group: &Group, tag: u8) {
    check_tagged(group, tag);
    let expected = one_by_one(group, tag);
    assert_eq!(Scalar::matches(group, tag).bits(), expected, "scalar: {tag} in {:?}", group.0);
    assert_eq!(Native::matches(group, tag).bits(), expected, "native: {tag} in {:?}", group.0);
}

/// Checks that the tag made from this byte is found.
fn check_tagged(group: &Group, byte: u8) {
    let expected = one_by_one(group, byte.max(1));
    assert_eq!(Scalar::tagged(group, byte).bits(), expected, "scalar: {byte} in {:?}", group.0);
    assert_eq!(Native::tagged(group, byte).bits(), expected, "native: {byte} in {:?}", group.0);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if Backend::Avx2.is_available() {
        // SAFETY: 1. The processor has AVX2, as was just checked.
        let found = unsafe { tagged_avx2(group, byte) };
        assert_eq!(found.bits(), expected, "AVX2: {byte} in {:?}", group.0);
    }
}

#[test]
fn every_set_of_slots_is_matched() {
    for bits in 0..1_u32 << 16 {
        for (tag, other) in [(0x80, 0), (0, 0xff), (1, 0), (0x81, 0x80), (0, 1)] {
            let byte = |slot: usize| if bits >> slot & 1 == 1 { tag } else { other };
            check(&Group(std::array::from_fn(byte)), tag);
        }
    }
}

#[test]
fn every_pair_of_bytes_is_distinguished() {
    for tag in 0..=u8::MAX {
        for other in 0..=u8::MAX {
            let mut group = Group([other; 16]);
            check(&group, tag);
            // A single difference or match among all others, so that a wrong carry would show.
            group.0[4] = tag;
            check(&group, tag);
        }
    }
}

#[test]
fn random_groups_are_matched() {
    let seed: u64 = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), "groups");
    println!("seed {seed:#x}");
    let mut state = seed | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..20_000 {
        let bytes = u128::from(random()) << 64 | u128::from(random());
        // Few different bytes, so that some are equal.
        let bytes = if random() % 2 == 0 { bytes & (u128::MAX / 255 * 0x81) } else { bytes };
        let group = Group(bytes.to_le_bytes());
        check(&group, group.0[random() as usize % 16]);
        check(&group, random() as u8);
    }
}

#[test]
fn an_overflow_count_sticks_at_its_end() {
    let mut group = Group::EMPTY;
    for count in 1..=254 {
        group.raise_overflow();
        assert_eq!(group.overflow(), count);
    }
    group.lower_overflow();
    assert_eq!(group.overflow(), 253);
    for _ in 0..10 {
        group.raise_overflow();
    }
    assert_eq!(group.overflow(), 255);
    for _ in 0..300 {
        group.lower_overflow();
    }
    assert_eq!(group.overflow(), 255, "more came than were counted: it can't be known how many");
    assert_eq!(Native::free(&group).bits(), (1 << 15) - 1, "the count is no tag");
}
