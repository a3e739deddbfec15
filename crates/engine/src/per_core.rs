//! Values made by control, one for each core of a group, that its factories take.

use crate::deployment::Deployment;
use hotloop_stage::Core;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A value for each core of one group, such as a [`Subscriber`](crate::Subscriber) or a
/// [`Mailbox`](crate::Mailbox): a factory takes its core's value.
pub struct PerCore<T> {
    group: usize,
    /// Locked while a core is made, never while it runs.
    values: Vec<Mutex<Option<T>>>,
}

impl<T> PerCore<T> {
    /// Makes a value for each core that runs `group`.
    pub(crate) fn new(deployment: Deployment, group: usize, make: impl FnMut() -> T) -> Self {
        let values = std::iter::repeat_with(make).take(deployment.cores_in(group));
        Self { group, values: values.map(|value| Mutex::new(Some(value))).collect() }
    }

    /// Takes the value of `core`. `None` if the core belongs to another group, or its value was
    /// taken before.
    pub fn take(&self, core: &Core) -> Option<T> {
        let value = self.values.get(core.index()).filter(|_| core.group() == self.group)?;
        value.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T> fmt::Debug for PerCore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCore")
            .field("group", &self.group)
            .field("core_count", &self.values.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_takes_the_value_of_its_group_and_number_once() {
        let mut next = 0;
        let values = PerCore::new(Deployment::pipeline([1, 2]), 1, || {
            next += 1;
            next
        });
        let core = Core::new(1, 2);
        assert_eq!(values.take(&core), None);
        assert_eq!(values.take(&core.in_group(1)), Some(2));
        assert_eq!(values.take(&core.in_group(1)), None);
        assert_eq!(values.take(&Core::new(2, 3).in_group(1)), None);
    }
}
