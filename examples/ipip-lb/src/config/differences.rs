//! The differences between two configurations, in words.

use super::Config;
use hotloop_balancer::spec::ServiceSpec;
use std::collections::HashMap;
use std::net::IpAddr;

impl Config {
    /// The differences to an earlier configuration, one after another.
    #[must_use]
    pub fn differences_to(&self, old: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (section, is_same) in [
            ("[balancer]", old.balancer == self.balancer),
            ("[limits]", old.limits == self.limits),
            ("[metrics]", old.metrics == self.metrics),
            ("health.quorum", old.quorum == self.quorum),
        ] {
            if !is_same {
                found.push(section.to_owned());
            }
        }
        let earlier = old.services.iter().map(|service| (&*service.name, service));
        let mut earlier: HashMap<_, _> = earlier.collect();
        for service in &self.services {
            let name = &service.name;
            let Some(before) = earlier.remove(&**name) else {
                found.push(format!("service {name} is new"));
                continue;
            };
            if settings(before) != settings(service) {
                found.push(format!("service {name}: its settings"));
            }
            if old.health.get(name) != self.health.get(name) {
                found.push(format!("service {name}: its health check"));
            }
            find_backends(before, service, &mut found);
        }
        let gone = old.services.iter().filter(|service| earlier.contains_key(&*service.name));
        found.extend(gone.map(|service| format!("service {} is gone", service.name)));
        found
    }
}

/// The service without its backends.
fn settings(service: &ServiceSpec) -> ServiceSpec {
    ServiceSpec { name: service.name.clone(), backends: Vec::new(), ..*service }
}

fn find_backends(old: &ServiceSpec, new: &ServiceSpec, found: &mut Vec<String>) {
    let name = &new.name;
    let mut earlier: HashMap<IpAddr, u32> =
        old.backends.iter().map(|backend| (backend.address, backend.weight)).collect();
    for backend in &new.backends {
        let (address, weight) = (backend.address, backend.weight);
        match earlier.remove(&address) {
            None => found.push(format!("service {name}: backend {address} is new")),
            Some(before) if before == weight => {}
            Some(before) => found.push(format!(
                "service {name}: backend {address} has weight {weight}, not {before}"
            )),
        }
    }
    let gone = old.backends.iter().filter(|backend| earlier.contains_key(&backend.address));
    found.extend(gone.map(|it| format!("service {name}: backend {} is gone", it.address)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_is_named_once() {
        let text = include_str!("../../../../packaging/example.toml");
        let parse = |text: &str| Config::parse("lb.toml", text).unwrap();
        let old = parse(text);
        assert_eq!(parse(text).differences_to(&old), [""; 0]);
        for (from, to, difference) in [
            ("mtu = 1500", "mtu = 1400", "[balancer]"),
            ("name = \"web\"", "name = \"www\"", "service www is new, service web is gone"),
            ("ports = \"80\"", "ports = \"81\"", "service web: its settings"),
            ("ports =", "health = { kind = \"tcp\" }\nports =", "service web: its health check"),
            (
                "\"10.0.0.1\"",
                "\"10.0.0.1\"\nweight = 7",
                "service web: backend 10.0.0.1 has weight 7, not 1",
            ),
            (
                "\"10.0.0.1\"",
                "\"10.0.0.9\"",
                "service web: backend 10.0.0.9 is new, service web: backend 10.0.0.1 is gone",
            ),
            (
                "[[port]]",
                "[limits]\nservice_new_connections_per_second_max = 9\n[[port]]",
                "[limits]",
            ),
        ] {
            let changed = text.replace(from, to);
            assert_ne!(changed, text, "{from}");
            assert_eq!(parse(&changed).differences_to(&old).join(", "), difference);
        }
    }
}
