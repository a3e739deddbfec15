//! A worker with its connections, control, and a peer.

use super::node::{Control, Heard, NONE, Nodes, Peer};
use core_affinity::CoreId;
use hotloop_balancer::services::{ServiceTable, Standing};
use hotloop_benches::bed::{Bed, Setup};
use ipip_lb::config::Config;
use ipip_lb::network_function::ControlHandles;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit for a walk or a snapshot.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// The calling thread is the worker; the others have a core of their own.
pub struct Side {
    pub bed: Bed,
    pub control: Control,
    peer: Option<Peer>,
    core: CoreId,
    nodes: Nodes,
    config: Config,
    /// Connections were made with the first table; in the second, one backend is drained.
    tables: [Arc<ServiceTable>; 2],
}

impl Side {
    /// A side with all connections entered, and a peer. Workers walk through them within
    /// `prepare_ms_max`.
    pub fn new(setup: &Setup, core: CoreId, prepare_ms_max: u32) -> Result<Self, String> {
        let nodes = Nodes::new(prepare_ms_max)?;
        let config = nodes.of_node(setup.configuration());
        let (bed, mut handles, asker) = Bed::sharing(setup, &config)?;
        let tables = tables(&config, &mut handles)?;
        let control =
            Control::start(core, &config, (handles.publisher, asker), Arc::clone(&tables[0]))?;
        let mut side = Self { bed, control, peer: None, core, nodes, config, tables };
        side.start_peer()?;
        Ok(side)
    }

    pub fn start_peer(&mut self) -> Result<(), String> {
        self.peer = Some(Peer::start(self.core, &self.nodes, &self.config.balancer)?);
        Ok(())
    }

    /// Ends the peer and returns the changes it has received, if there is one.
    pub fn end_peer(&mut self) -> Result<Heard, String> {
        self.peer.take().map_or_else(|| Ok(Heard::default()), Peer::finish)
    }

    /// Publishes the table: in even rounds with the other one as the next reference table, else without.
    /// Returns its number.
    pub fn change(&self, round: usize) -> u64 {
        let [table, drained] = &self.tables;
        let next = round.is_multiple_of(2).then_some(drained);
        let table = Arc::new(table.with_references([Some(table), next]));
        let serial = table.serial();
        self.control.publish(table);
        serial
    }

    /// Publishes the table that connections begin by from now on: the second one if it `is_apart`, else
    /// the first one, which is the reference table. Waits until the peer has entered everything.
    pub fn begin_by(&mut self, is_apart: bool) -> Result<(), String> {
        let table = apart(&self.tables, is_apart);
        let serial = table.serial();
        self.control.publish(table);
        let is_entered =
            |control: &Control| control.marked() == serial && control.entered() == serial;
        self.play_until("the peer", is_entered)
    }

    /// The changes that the peer has received up to now.
    pub fn heard(&self) -> Heard {
        self.peer.as_ref().map_or_else(Heard::default, Peer::heard)
    }

    /// Waits until the peer has entered everything.
    pub fn settle(&mut self) -> Result<(), String> {
        self.play_until("the peer", |control| control.entered() != NONE)
    }

    /// Processes bursts until a condition holds.
    pub fn play_until(
        &mut self,
        what: &str,
        is_so: impl Fn(&Control) -> bool,
    ) -> Result<(), String> {
        let Self { bed, control, .. } = self;
        let (begin, mut is_done) = (Instant::now(), false);
        let goes_on = |_| {
            is_done = is_so(control);
            !is_done && begin.elapsed() < WAIT_MAX
        };
        bed.play_while(goes_on, |_| ());
        if is_done { Ok(()) } else { Err(waited(what)) }
    }

    /// Ends control, and checks that all received packets were sent.
    pub fn finish(self) -> Result<(), String> {
        drop(self.control);
        self.bed.finish()
    }
}

/// The first table, and the same with one backend of each service drained.
pub fn tables(
    config: &Config,
    handles: &mut ControlHandles,
) -> Result<[Arc<ServiceTable>; 2], String> {
    let mut drained = config.clone();
    for service in &mut drained.services {
        service.backends[0].weight = 0;
    }
    let drained = handles.builder.build(&drained.spec(), &Standing::default());
    let drained = drained.map_err(|error| error.to_string())?;
    Ok([Arc::clone(&handles.services), Arc::new(drained)])
}

/// One of these tables for connections that begin: the second one if it `is_apart`. The first one is the
/// reference table.
pub fn apart(tables: &[Arc<ServiceTable>; 2], is_apart: bool) -> Arc<ServiceTable> {
    let [first, drained] = tables;
    let table = if is_apart { drained } else { first };
    Arc::new(table.with_references([Some(first), None]))
}

/// The message if something took too long.
pub fn waited(what: &str) -> String {
    format!("{what} took more than {WAIT_MAX:?}")
}
