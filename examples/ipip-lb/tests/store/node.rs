//! A running node without a device.

use super::etcd::Server;
use hotloop_cluster::settings::{StoreAccess, StoreTls, StoreUser};
use hotloop_tests::{Program, wait_until};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes the file of the node with this name and this access to its store.
pub fn write_node(path: &Path, access: &StoreAccess, name: &str) {
    let folder = path.display();
    let node = format!(
        "[cluster]\nnode = \"{name}\"\nstore = \"{}\"\nstore_copy = \"{folder}/copy.toml\"\n\
         {}\
         [engine]\nworkers = 1\nidle = \"adaptive\"\nworker_stall_ms_max = 0\n\
         [balancer]\nsource_v4 = \"192.0.2.1\"\ndecapsulate = []\nconnections_max = 1024\n\
         operator_file = \"{folder}/kept.json\"\n\
         [[port]]\nname = \"up\"\ndevice = \"net_null0,no-rx=1\"\n\
         next_hop_mac = \"02:00:00:00:00:01\"\n",
        access.address,
        tls_keys(access)
    );
    fs::write(path.join("node.toml"), node).unwrap();
}

/// The keys of `[cluster]` for TLS to the store.
pub fn tls_keys(access: &StoreAccess) -> String {
    let Some(StoreTls { authority, certificate, user }) = &access.tls else { return String::new() };
    let mut keys = format!("store_authority = {authority:?}\n");
    if let Some((certificate, key)) = certificate {
        keys += &format!("store_certificate = {certificate:?}\nstore_key = {key:?}\n");
    }
    if let Some(StoreUser { name, password_file }) = user {
        keys += &format!("store_user = {name:?}\nstore_password_file = {password_file:?}\n");
    }
    keys
}

/// The program, with that file.
pub fn run(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    command.current_dir(folder).args(["run", "--config", "node.toml", "--report", "json"]);
    command.args(["--control", "lb.sock"]);
    command
}

pub fn start(folder: &Path) -> Program {
    Program::start(run(folder), &folder.join("lb.sock"))
}

pub fn status(program: &Program) -> Value {
    program.ask("status").expect("it answers")
}

/// Waits until this many services of this revision are in force.
pub fn wait_for(program: &Program, revision: i64, services: usize) {
    wait_until("the revision is in force", || {
        let status = status(program);
        status["store"]["revision"] == revision && status["services"] == services
    });
}

/// A node in a folder of its own.
pub struct Node {
    pub folder: tempfile::TempDir,
    pub program: Program,
}

impl Node {
    pub fn start(server: &Server, name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_node(folder.path(), &server.access(), name);
        let program = start(folder.path());
        let node = Self { folder, program };
        node.wait_until_registered();
        node
    }

    pub fn wait_until_registered(&self) {
        wait_until("changes wait for it", || self.store()["is_registered"] == true);
    }

    /// Its view of the store.
    pub fn store(&self) -> Value {
        status(&self.program)["store"].clone()
    }

    /// The revision in force, and its number of services.
    pub fn in_force(&self) -> (Value, Value) {
        let status = status(&self.program);
        (status["store"]["revision"].clone(), status["services"].clone())
    }
}
