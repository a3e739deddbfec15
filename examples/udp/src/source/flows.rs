//! The flows to send: their sources and destinations.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Flows, each with its own source. They go to the destinations in turn.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Flows {
    /// The first source address. Once its ports are used up, flows come from the next address.
    pub from: IpAddr,
    /// The first source port of each source address.
    pub first_port: u16,
    /// Destinations, at least one, all of the same IP version as `from`.
    pub to: Vec<SocketAddr>,
    /// Number of flows, at least 1.
    pub count: u32,
}

impl Flows {
    /// Number of source ports of each source address.
    #[must_use]
    pub fn ports(&self) -> u32 {
        u32::from(u16::MAX - self.first_port) + 1
    }

    /// Number of source addresses.
    #[must_use]
    pub fn address_count(&self) -> u32 {
        self.count.div_ceil(self.ports())
    }

    /// The source of a flow.
    #[must_use]
    pub fn source(&self, index: u32) -> SocketAddr {
        let (address, port) = (index / self.ports(), index % self.ports());
        let from = match self.from {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits().wrapping_add(address)).into(),
            IpAddr::V6(first) => {
                Ipv6Addr::from_bits(first.to_bits().wrapping_add(u128::from(address))).into()
            }
        };
        SocketAddr::new(from, self.first_port + port as u16)
    }

    /// The index of a flow's destination.
    #[must_use]
    pub fn destination_index(&self, index: u32) -> usize {
        index as usize % self.to.len()
    }

    /// The destination of a flow.
    #[must_use]
    pub fn destination(&self, index: u32) -> SocketAddr {
        self.to[self.destination_index(index)]
    }

    /// The flows that core or thread `core_index` of `core_count` sends: each flow has one sender,
    /// so that no flow is reordered.
    pub fn share(&self, core_index: usize, core_count: usize) -> impl Iterator<Item = u32> + use<> {
        (0..self.count).skip(core_index).step_by(core_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn flows(from: &str, first_port: u16, count: u32) -> Flows {
        let to = ["192.0.2.1:4321", "192.0.2.2:4321", "192.0.2.3:4321"];
        let to = to.map(|address| address.parse().unwrap()).to_vec();
        Flows { from: from.parse().unwrap(), first_port, to, count }
    }

    #[test]
    fn each_flow_has_a_source_of_its_own() {
        let flows = flows("10.0.0.255", 65_000, 2_000);
        let sources: BTreeSet<_> = (0..2_000).map(|index| flows.source(index)).collect();
        assert_eq!((sources.len(), flows.address_count()), (2_000, 4));
        assert_eq!(flows.source(535).to_string(), "10.0.0.255:65535");
        assert_eq!(flows.source(536).to_string(), "10.0.1.0:65000");
    }

    #[test]
    fn addresses_of_both_versions_follow_each_other() {
        let flows = flows("2001:db8::ffff", 65_535, 2);
        let sources = [0, 1].map(|index| flows.source(index).to_string());
        assert_eq!(sources, ["[2001:db8::ffff]:65535", "[2001:db8::1:0]:65535"]);
    }

    #[test]
    fn destinations_take_turns() {
        let flows = flows("10.0.0.1", 1000, 6);
        let indices: Vec<_> = (0..6).map(|index| flows.destination_index(index)).collect();
        assert_eq!(indices, [0, 1, 2, 0, 1, 2]);
        assert_eq!(flows.destination(4), "192.0.2.2:4321".parse().unwrap());
    }

    #[test]
    fn cores_share_the_flows() {
        let flows = flows("10.0.0.1", 1000, 7);
        let shares: Vec<Vec<_>> = (0..3).map(|core| flows.share(core, 3).collect()).collect();
        assert_eq!(shares, [vec![0, 3, 6], vec![1, 4], vec![2, 5]]);
    }
}
