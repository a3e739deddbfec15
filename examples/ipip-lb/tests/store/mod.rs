//! The configuration that all nodes share: in a real etcd, if one is installed, and in a server
//! that breaks the rules.
#![allow(clippy::print_stdout, reason = "a test says what it skips")]

mod access;
mod bad_keys;
mod change;
mod command;
mod etcd;
mod faults;
mod health;
mod kept;
mod lost;
mod node;
mod phases;
mod real;
mod running;
mod secure;
mod stand_in;
mod vips;
mod watch;

/// A shared configuration with services named `web0` and so on.
fn shared(services: usize) -> String {
    let service = |index: usize| {
        let (high, low) = (index / 250, index % 250 + 1);
        format!(
            "\n# The service {index}.\n[[service]]\nname = \"web{index}\"\naddress = \"203.0.{high}.{low}\"\n\
             protocol = \"tcp\"\nports = \"80\"\nbackend = [{{ address = \"10.0.0.1\" }}]\n"
        )
    };
    let services: String = (0..services).map(service).collect();
    format!("[balancer]\nmtu = 1500\n{services}")
}
