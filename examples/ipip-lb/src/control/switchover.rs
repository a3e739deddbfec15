//! Switching over to a change that is built and prepared: the fourth step of a
//! [publication](super::publication). From then on the change is in force for control, with its
//! configuration, weights, probes, certificates, and the output of `ctl`.
//!
//! Part of [`Publisher`]; changes [`Members`] and the [`ClusterLink`], all at once. Nothing is
//! published yet: the next step adds changes of health since the build. Answers wait for that, too.

use super::build::{AfterBuild, Built, WeightChange};
use super::cluster_link::ClusterLink;
use super::members::Members;
use super::publication::TableVersion;
use super::publisher::Publisher;
use super::reload::ReloadOrigin;
use hotloop_balancer::services::Removal;
use std::sync::Arc;
use std::time::Instant;

impl Publisher {
    /// Switches over to a change that has left the stages.
    pub(super) fn switch_over(
        &mut self,
        built: Built,
        after: AfterBuild,
        members: &mut Members,
        link: &mut ClusterLink,
    ) {
        let Built { version, builder, removed, probed, differences } = built;
        let TableVersion { config, table, .. } = version;
        self.table = table;
        self.is_published = false;
        members.note_change();
        self.publication.built_by = builder;
        self.publication.adopted = Instant::now();
        self.publication.refresh.restart();
        self.removed_counts.add(removed);
        match after {
            AfterBuild::Configuration(stored, renewed, origins) => {
                self.config = config;
                if let Some((node, tls)) = link.node.as_mut().zip(renewed) {
                    node.renew(tls);
                }
                if let Some((store, stored)) = link.store.as_mut().zip(stored) {
                    store.accept(stored);
                }
                let is_reset = origins.iter().any(ReloadOrigin::is_reset);
                let changes = members.carry_over(&self.config, is_reset);
                members.probe(probed);
                members.refresh_down(&self.config, link);
                self.accept(origins, differences, changes);
            }
            AfterBuild::Removal(removed, answerer) => {
                removed.names.iter().for_each(|(name, _)| members.drains.forget(name));
                Arc::make_mut(&mut members.overrides).removed.extend(removed.names);
                self.publication.refresh.answer_later(answerer, removed.answer);
            }
            AfterBuild::Drained(drained) => {
                members.drains.finish(&drained);
                let removed = drained.into_iter().map(|drained| (drained.name, Removal::Rebalance));
                Arc::make_mut(&mut members.overrides).removed.extend(removed);
            }
            AfterBuild::Weights(all) => self.weighed(all, members),
            AfterBuild::References(references) => self.publication.references = references,
            AfterBuild::Proposal(_) => {}
        }
    }

    /// Records these weights, which are in force.
    fn weighed(&mut self, all: Vec<WeightChange>, members: &mut Members) {
        for WeightChange { names, weight, until, why, answerer, answer } in all {
            for name in &names {
                match until {
                    Some((until, since)) => members.drains.plan(name.clone(), until, since),
                    None => members.drains.cancel(name, why),
                }
            }
            let weights = names.into_iter().map(|name| (name, weight));
            Arc::make_mut(&mut members.overrides).weights.extend(weights);
            self.publication.refresh.answer_later(answerer, answer);
        }
        members.forget_configured(&self.config);
    }
}
