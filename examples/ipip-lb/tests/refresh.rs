//! Successive service tables: unchanged parts are kept, and a refresh has the same result as a
//! build.

use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::protocol;
use hotloop::testing::Rng;
use hotloop_balancer::maglev;
use hotloop_balancer::services::{
    Builder, Removal, Service, ServiceTable, ServicesOfFlow, Standing, TargetName,
};
use hotloop_balancer::spec::{Backend, IcmpEcho};
use hotloop_health::settings::Health;
use ipip_lb::config::Config;
use ipip_lb::overrides::Overrides;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

const SERVICES: u8 = 24;

/// Services with two or three backends each; neighbours share one.
fn config(all_down: &str) -> Config {
    let mut text =
        "[balancer]\nsource_v4 = \"192.0.2.1\"\nsource_v6 = \"2001:db8::1\"\nmtu = 1500\n\
                    decapsulate = []\nmaglev_slots = 503\n[[port]]\nname = \"up\"\n\
                    device = \"net_null0\"\nnext_hop_mac = \"02:00:00:00:00:01\"\n"
            .to_owned();
    for index in 0..SERVICES {
        let scheduler = ["maglev", "round-robin", "least-connections", "source"];
        let scheduler = scheduler[usize::from(index) % 4];
        write!(
            text,
            "[[service]]\nname = \"s{index}\"\naddress = \"203.0.113.{index}\"\nprotocol = \"tcp\"\n\
             ports = \"80\"\nscheduler = \"{scheduler}\"\nall_down = \"{all_down}\"\n\
             health = {{ kind = \"tcp\", interval_ms = {} }}\n",
            1000 + u32::from(index % 3)
        )
        .unwrap();
        for backend in index..=index + 1 + index % 2 {
            writeln!(text, "[[service.backend]]\naddress = \"10.0.0.{backend}\"").unwrap();
        }
    }
    Config::parse("lb.toml", &text).unwrap()
}

fn health(config: &Config, service: usize) -> Health {
    config.health[&config.services[service].name].clone()
}

/// The table as packets see it.
fn seen(table: &ServiceTable) -> String {
    let mut text = format!("{:016x}\n", table.digest());
    for service in table.all() {
        let hashes = (0..64_u32).map(|step| service.by_hash(step << 26));
        writeln!(text, "{} {:?} {:?}", service.name, service.choices, hashes.collect::<Vec<_>>())
            .unwrap();
    }
    for target in table.targets() {
        let (address, weight) = (target.address(), target.weight);
        let (service, is_up, is_usable) = (target.service, target.is_up, target.is_usable);
        writeln!(text, "{service:?} {address} {weight} {is_up} {is_usable}").unwrap();
    }
    text
}

/// Overrides after some random changes; without removals, which require a builder.
fn change(overrides: &mut Overrides, config: &Config, rng: &mut Rng) {
    for _ in 0..1 + rng.below(4) {
        let index = rng.index(config.services.len());
        let service = &config.services[index];
        let backend = service.backends[rng.index(service.backends.len())].address;
        match rng.below(3) {
            0 => {
                let weight = rng.below(4) as u32;
                overrides.weights.insert(TargetName::new(&service.name, backend), weight);
            }
            1 => drop(overrides.down.insert((backend, health(config, index)))),
            _ => drop(overrides.down.remove(&(backend, health(config, index)))),
        }
    }
}

#[test]
fn what_is_refreshed_is_what_would_have_been_built() {
    for seed in 0..40 {
        let mut rng = Rng::seeded(seed);
        let config = config(if seed % 2 == 0 { "forward" } else { "drop" });
        let (mut builder, mut overrides) = (Builder::new(&config.services), Overrides::default());
        for index in 0..seed % 5 {
            let service = &config.services[index as usize * 3];
            let name = TargetName::new(&service.name, service.backends[0].address);
            overrides.removed.insert(name, Removal::Rebalance);
        }
        let mut table = builder.build(&config.spec(), &overrides.standing(&config)).unwrap();
        for _ in 0..10 {
            change(&mut overrides, &config, &mut rng);
            let standing = overrides.standing(&config);
            let maglevs = builder.maglevs().clone();
            if let Some(refreshed) = table.refreshed(&config.spec(), &standing, &maglevs) {
                table = refreshed;
            }
            let built = builder.build(&config.spec(), &standing).unwrap();
            assert_eq!(seen(&table), seen(&built), "seed {seed}");
        }
    }
}

/// The names of services that use another Maglev table in memory than before.
fn renewed(before: &ServiceTable, after: &ServiceTable) -> Vec<String> {
    let of = |service: &Service| before.all().iter().find(|it| it.name == service.name);
    let is_new = |it: &&Service| !of(it).is_some_and(|before| it.shares_table(before));
    after.all().iter().filter(is_new).map(|it| it.name.to_string()).collect()
}

#[test]
fn services_that_have_not_changed_keep_their_tables() {
    let mut config = config("forward");
    let mut builder = Builder::new(&config.services);
    let first = builder.build(&config.spec(), &Standing::default()).unwrap();
    // A new configuration: one service has another backend, one is new.
    config.services[3].backends[0].address = IpAddr::V4(Ipv4Addr::new(10, 0, 9, 9));
    let mut more = config.services[5].clone();
    (more.name, more.address) = ("more".to_owned(), "203.0.113.99".parse().unwrap());
    more.backends[0].weight = 7;
    config.services.insert(0, more);
    let second = builder.build(&config.spec(), &Standing::default()).unwrap();
    assert_eq!(renewed(&first, &second), ["more", "s3"]);

    // A backend goes down: two services have it, and only one of them probes it so.
    let mut overrides = Overrides::default();
    let down = config.services.iter().position(|it| it.name == "s8").unwrap();
    overrides.down.insert((config.services[down].backends[1].address, health(&config, down)));
    let standing = overrides.standing(&config);
    let third = second.refreshed(&config.spec(), &standing, builder.maglevs()).unwrap();
    assert_eq!(renewed(&second, &third), ["s8"]);
    assert!(first.digest() != second.digest() && second.digest() != third.digest());
    assert_ne!(first.targets_serial(), second.targets_serial());
    assert_eq!(second.targets_serial(), third.targets_serial());
    assert!(third.refreshed(&config.spec(), &standing, builder.maglevs()).is_none());
    // Once it is up again, everything is as before, even the Maglev table.
    let fourth = third.refreshed(&config.spec(), &Standing::default(), builder.maglevs()).unwrap();
    assert_eq!((renewed(&second, &fourth), seen(&fourth)), (Vec::new(), seen(&second)));
}

/// Services with the same backends share a Maglev table, which takes its memory once.
#[test]
fn what_services_share_takes_memory_once() {
    let bytes = |second: [u8; 2]| {
        let mut config = config("forward");
        config.services.truncate(2);
        for (service, numbers) in config.services.iter_mut().zip([[1, 2], second]) {
            let address = |number| IpAddr::from([10, 0, 0, number]);
            let backend = |number| Backend { address: address(number), weight: 1 };
            service.backends = numbers.map(backend).into();
        }
        let table =
            Builder::new(&config.services).build(&config.spec(), &Standing::default()).unwrap();
        table.memory_bytes()
    };
    let own_bytes = maglev::memory_bytes(2, 503) + 2 * size_of::<IpAddr>();
    assert_eq!(bytes([3, 4]), bytes([1, 2]) + own_bytes);
}

#[test]
fn the_services_of_a_flow_are_those_of_either_table() {
    let mut config = config("drop");
    config.balancer.icmp_echo = IcmpEcho::Forward;
    let flow = |service: u8, port: u16, protocol: u8| {
        let (client, vip) = (Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(203, 0, 113, service));
        let source = SocketAddr::from((client, 4000));
        FlowKey::new(source, SocketAddr::from((vip, port)), protocol).unwrap()
    };
    let build = |config: &Config| {
        Builder::new(&config.services).build(&config.spec(), &Standing::default()).unwrap()
    };
    let weighed = |config: &mut Config| config.services[3].backends[0].weight = 0;
    let removed = |config: &mut Config| drop(config.services.remove(3));
    let turned = |config: &mut Config| config.services.reverse();
    let changes: [&dyn Fn(&mut Config); 3] = [&weighed, &removed, &turned];
    for change in changes {
        let mut changed = config.clone();
        change(&mut changed);
        let (table, other) = (build(&config), Arc::new(build(&changed)));
        let table = table.with_references([Some(&other), None]);
        let place = |it: Option<&Service>| it.map(std::ptr::from_ref);
        let places = |its: ServicesOfFlow<'_>| (place(its.service), place(its.reference));
        for service in 0..=SERVICES {
            let tcp = flow(service, 80, protocol::TCP);
            let of = |table: &ServiceTable, key| place(table.service_of_flow(key));
            let each = |key| (of(&table, key), of(&other, key));
            assert_eq!(places(table.services_of_flow(&tcp)), each(&tcp), "{tcp:?}");
            assert_eq!(each(&tcp).0.is_some(), service < SERVICES);
            let no_port = flow(service, 81, protocol::TCP);
            assert_eq!(places(table.services_of_flow(&no_port)), (None, None));
            // Any service of the address: there is one.
            let echo = flow(service, 0, protocol::ICMP);
            assert_eq!(places(table.services_of_flow(&echo)), each(&tcp), "{echo:?}");
        }
    }
}
