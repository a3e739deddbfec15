//! Idle timeouts, and lookups that don't extend them.

use std::hash::Hash;

use super::{Flow, Model, RECENT_STEPS};
use crate::tests::Chosen;
use crate::{CLASS_COUNT, STEP_NS};

impl Model {
    pub(super) fn now_step(&self) -> u64 {
        self.now_ns / STEP_NS
    }

    pub(super) fn is_expired(&self, flow: &Flow) -> bool {
        let idle_steps = self.idle_steps[flow.class.index()];
        idle_steps != u32::MAX.into() && self.now_step() - flow.seen_step > idle_steps
    }

    /// The number of the value that `find_hinted` should return; marks the flow as seen.
    pub(super) fn expect_recent(&mut self, key: Chosen) -> Option<u64> {
        let flow = *self.flows.get(&key)?;
        let is_recent = self.now_step() - flow.seen_step < RECENT_STEPS;
        if is_recent { self.expect_found(key).map(|_| flow.number) } else { None }
    }

    /// Looks at a flow without marking it as seen, with a hint or none.
    pub(super) fn peek(&mut self, key: Chosen) {
        let found = self.table.peek(&key, self.hint_of(key), self.now());
        let found = found.map_err(|vacancy| self.vacancy = Some(vacancy)).ok();
        let expected = self.flows.get(&key).filter(|flow| !self.is_expired(flow));
        let silent_ns =
            |flow: &Flow| (self.now_step() - flow.seen_step).saturating_sub(1) * STEP_NS;
        assert_eq!(found, expected.map(|flow| (flow.handle, silent_ns(flow))));
        found.hash(&mut self.trace);
    }

    /// Changes the idle timeout of one class, except the last.
    pub(super) fn set_idle(&mut self, number: u64) {
        self.idle_steps[number as usize % (CLASS_COUNT - 1)] = number / 8 % 60;
        let idle_ns = self.idle_steps.map(|steps| steps.saturating_mul(STEP_NS));
        self.table.set_idle_ns(idle_ns);
    }
}
