//! Routes to VIPs: installation and deletion, without touching other routes.

use super::said::json;
use super::{network, run};
use hotloop_kernel::{
    KernelFollower, KernelTables, ROUTE_PROTOCOL, VIP_METRIC, VipRouteError, VipRoutes,
};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The index of the interface `a0`.
fn interface(tables: &KernelTables) -> u32 {
    tables.link_named("a0").unwrap().index
}

fn vips(text: &str) -> BTreeSet<IpAddr> {
    text.split_whitespace().map(|vip| vip.parse().unwrap()).collect()
}

/// hotloop's routes in the output of `ip`: destination, interface, scope and metric.
fn shown() -> Vec<String> {
    let of = |version| json(&format!("{version} route show table main"));
    let ours = ROUTE_PROTOCOL.to_string();
    let mut lines: Vec<_> = [of("-4"), of("-6")]
        .concat()
        .iter()
        .filter(|route| route["protocol"] == ours.as_str())
        .map(|route| {
            let scope = route["scope"].as_str().unwrap_or("-");
            let text = |key: &str| route[key].as_str().unwrap().to_owned();
            format!("{} {} {scope} {}", text("dst"), text("dev"), route["metric"])
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn routes_to_vips_come_and_go() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let kernel = KernelFollower::start().unwrap();
    let index = kernel.read(interface);
    // Left by an earlier program, also with another metric; those of another interface are not
    // ours.
    run("route add 203.0.113.99/32 dev a0 proto 104 metric 7");
    run("-6 route add 2001:db8::99/128 dev a0 proto 104");
    run("route add 203.0.113.98/32 dev b0 proto 104");
    let mut routes = VipRoutes::begin(index, VIP_METRIC).unwrap();
    assert_eq!(shown(), ["203.0.113.98 b0 link null"]);

    let both = vips("203.0.113.10 2001:db8::10");
    let expected =
        ["2001:db8::10 a0 global 2048", "203.0.113.10 a0 link 2048", "203.0.113.98 b0 link null"];
    for _ in 0..2 {
        routes.set(&both).unwrap();
        assert_eq!(shown(), expected);
        assert_eq!(*routes.installed(), both);
    }
    // Somebody deletes one, or takes the interface down and up, which deletes all of them.
    run("route del 203.0.113.10/32 dev a0");
    routes.set(&both).unwrap();
    assert_eq!(shown(), expected);
    run("link set a0 down");
    run("link set a0 up");
    routes.set(&both).unwrap();
    assert_eq!(shown(), expected);

    routes.set(&vips("203.0.113.10 203.0.113.11")).unwrap();
    let expected =
        ["203.0.113.10 a0 link 2048", "203.0.113.11 a0 link 2048", "203.0.113.98 b0 link null"];
    assert_eq!(shown(), expected);
    run("route del 203.0.113.10/32 dev a0");
    routes.withdraw().unwrap();
    assert_eq!(shown(), ["203.0.113.98 b0 link null"]);
    assert!(routes.installed().is_empty());

    routes.set(&both).unwrap();
    drop(routes);
    assert_eq!(shown(), ["203.0.113.98 b0 link null"]);
}

#[test]
fn the_route_of_somebody_else_is_left_alone_and_named() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let kernel = KernelFollower::start().unwrap();
    let mut routes = VipRoutes::begin(kernel.read(interface), 5).unwrap();
    run("route add 203.0.113.10/32 dev b0 proto 4 metric 5");
    run("-6 route add 2001:db8::10/128 dev b0 proto 4 metric 5");
    let both = vips("203.0.113.10 203.0.113.11 2001:db8::10");
    let errors = routes.set(&both).unwrap_err();
    assert_eq!(errors.len(), 2, "{errors:?}");
    for error in &errors {
        assert!(matches!(error, VipRouteError::Taken { protocol: 4, metric: 5, .. }), "{error:?}");
        assert!(error.to_string().contains("delete it"), "{error}");
    }
    // The rest is done, and the obstructed part is done the next time.
    assert_eq!(*routes.installed(), vips("203.0.113.11"));
    run("route del 203.0.113.10/32");
    run("-6 route del 2001:db8::10/128");
    routes.set(&both).unwrap();
    assert_eq!(shown().len(), 3);

    // Without the interface there is nothing to delete, and nothing can be installed.
    run("link del a0");
    assert_eq!(shown(), Vec::<String>::new());
    let errors = routes.set(&both).unwrap_err();
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors[0].to_string().contains("has to be there and up"), "{}", errors[0]);
    routes.withdraw().unwrap();
}
