//! The measured configuration.

use crate::traffic::{SERVICE_PORT, SERVICES};
use hotloop::packet::ethernet::MacAddress;
use hotloop_balancer::balance::{Egress, Egresses, Route};
use ipip_lb::config::Config;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Number of backends of each service when it matters little.
pub const BACKEND_COUNT: u32 = 4;

/// The backends have the addresses after this one.
pub const BACKENDS: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 0);

/// The station that packets are sent to.
pub const NEXT_HOP: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 3]);
const OWN_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 2]);

/// A deployment in the configuration: one core does everything.
pub const ONE_CORE: &str = "deployment = \"run-to-completion\"\nworkers = 1";

/// A deployment in the configuration: one core receives, another balances and sends.
pub const PIPELINE: &str = "deployment = \"pipeline\"\ndispatchers = 1\nworkers = 1";

/// `service_count` services, each with the same `backend_count` backends, as if many services
/// shared a fleet, and room for `connections_max` connections per worker.
///
/// Established connections outlast the bench, and new connections are not limited in number per
/// second.
///
/// # Panics
/// If the numbers exceed the limits of a configuration.
pub fn configuration(
    (service_count, backend_count): (u32, u32),
    connections_max: u32,
    deployment: &str,
) -> Config {
    let backends = (1..=backend_count).map(|number| {
        format!("{{ address = \"{}\" }}", Ipv4Addr::from_bits(BACKENDS.to_bits() + number))
    });
    let backends = backends.collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "[engine]\n{deployment}\n\
         [balancer]\n\
         source_v4 = \"192.0.2.0/26\"\n\
         source_v6 = \"2001:db8::1\"\n\
         mtu = 1500\n\
         decapsulate = []\n\
         connections_max = {connections_max}\n\
         new_connections_per_second_max = 1_000_000_000\n\
         [balancer.timeouts_s]\n\
         tcp_opening = 10\n\
         tcp_established = 86400\n\
         [[port]]\n\
         name = \"uplink\"\n\
         device = \"net_null0\"\n\
         next_hop_mac = \"{NEXT_HOP}\"\n"
    );
    for number in 0..service_count {
        let address = Ipv4Addr::from_bits(SERVICES.to_bits() + number);
        let written = write!(
            text,
            "[[service]]\n\
             name = \"web-{number}\"\n\
             address = \"{address}\"\n\
             protocol = \"tcp\"\n\
             ports = \"{SERVICE_PORT}\"\n\
             backend = [{backends}]\n"
        );
        written.expect("text grows");
    }
    Config::parse("balancer", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// Everything leaves by the only port.
pub const fn egresses() -> Egresses {
    let egress = Egress { route: Route(0), source: OWN_MAC, destination: NEXT_HOP };
    Egresses { clients: egress, backends: egress }
}
