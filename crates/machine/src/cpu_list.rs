//! Lists of CPUs in the kernel's format.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// More CPUs than any machine has. The range in a broken file must not fill the memory.
const CPU_COUNT_MAX: usize = 1 << 16;

/// A set of CPUs, by the kernel's numbers. Displayed as `0-3,8`: "List format" in cpuset(7).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CpuList(BTreeSet<usize>);

/// The text is not a list of CPUs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("write CPUs below 65536 as numbers and ranges with commas between them, such as 2-5,8")]
pub struct CpuListError;

impl CpuList {
    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list contains `cpu`.
    #[must_use]
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// The CPUs that are in both lists.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        Self(&self.0 & &others.0)
    }

    /// The CPUs that are not in `others`.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        Self(&self.0 - &others.0)
    }

    /// The CPUs that are in either list.
    #[must_use]
    pub fn or(&self, others: &Self) -> Self {
        Self(&self.0 | &others.0)
    }

    /// The list in words: `CPU 2`, `CPUs 2-5`, `no CPU`.
    #[must_use]
    pub(crate) fn in_words(&self) -> String {
        match self.len() {
            0 => "no CPU".to_owned(),
            1 => format!("CPU {self}"),
            _ => format!("CPUs {self}"),
        }
    }
}

impl FromIterator<usize> for CpuList {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    /// Empty text is an empty list.
    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse().map_err(|_| CpuListError);
            let (first, last): (usize, usize) = (number(first)?, number(last)?);
            if first > last || last >= CPU_COUNT_MAX {
                return Err(CpuListError);
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus: Vec<_> = self.iter().collect();
        for (index, range) in cpus.chunk_by(|one, next| one + 1 == *next).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match range {
                [one] => write!(f, "{comma}{one}")?,
                _ => write!(f, "{comma}{}-{}", range[0], range[range.len() - 1])?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for (text, written) in [("0-3,8,10-11\n", "0-3,8,10-11"), ("3,1,2", "1-3"), ("", "")] {
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), written);
        }
        for wrong in ["x", "1,,2", "5-4", "-", "65536", "0-99999999999"] {
            assert_eq!(wrong.parse::<CpuList>(), Err(CpuListError), "{wrong}");
        }
        let words = |text: &str| text.parse::<CpuList>().unwrap().in_words();
        assert_eq!([words(""), words("4"), words("4-5")], ["no CPU", "CPU 4", "CPUs 4-5"]);
    }
}
