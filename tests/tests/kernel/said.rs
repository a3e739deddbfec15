//! The output of `ip`, and the same from [`KernelTables`], line by line.

use hotloop_kernel::{KernelTables, MAIN, RouteKind};
use hotloop_tests::tool;
use serde_json::Value;
use std::net::IpAddr;

/// `ip -j`'s detailed answer to these arguments.
pub fn json(arguments: &str) -> Vec<Value> {
    let words = arguments.split_whitespace();
    let output = tool("ip").unwrap().args(["-j", "-d"]).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    if text.trim().is_empty() { Vec::new() } else { serde_json::from_str(&text).unwrap() }
}

/// Links, addresses, routes and neighbours, from `ip`.
pub fn by_ip() -> Vec<String> {
    let mut lines = Vec::new();
    for link in json("link show") {
        let flags = link["flags"].to_string();
        let has = |flag: &str| flags.contains(&format!("\"{flag}\""));
        // `ip` shows the kernel's operational state in place of IFF_RUNNING.
        let is_running = has("UP") && !has("NO-CARRIER");
        let (name, mtu, mac) = (text(&link["ifname"]), &link["mtu"], text(&link["address"]));
        lines.push(format!("link {name} {mtu} {mac} {} {is_running}", has("UP")));
        for address in json(&format!("address show dev {name}")) {
            for info in address["addr_info"].as_array().unwrap() {
                let (local, len) = (text(&info["local"]), &info["prefixlen"]);
                lines.push(format!("address {name} {local}/{len}"));
            }
        }
    }
    for version in ["-4", "-6"] {
        lines.extend(json(&format!("{version} route show table all")).iter().filter_map(route));
        for neighbour in json(&format!("{version} neigh show")) {
            let state = text(&neighbour["state"][0]);
            let (dst, dev) = (text(&neighbour["dst"]), text(&neighbour["dev"]));
            let usable = !["INCOMPLETE", "FAILED"].contains(&state.as_str());
            let mac = if usable { text(&neighbour["lladdr"]) } else { String::new() };
            lines.push(format!("neighbour {dev} {dst} {mac}"));
        }
    }
    lines.sort();
    lines
}

/// A route of the three tables, from `ip`.
fn route(route: &Value) -> Option<String> {
    let table = route["table"].as_str().unwrap_or("main");
    let table = match table {
        "main" => MAIN,
        "local" => 255,
        "default" => 253,
        number => number.parse().unwrap(),
    };
    if !(253..=255).contains(&table) {
        return None;
    }
    let paths = match &route["nexthops"] {
        Value::Array(paths) => paths.iter().map(path).collect(),
        _ => vec![path(route)],
    };
    let kind = route["type"].as_str().unwrap_or("unicast");
    let kind = if kind == "anycast" { "local" } else { kind };
    let metric = route["metric"].as_u64().unwrap_or(0);
    let whole = if route["dst"].as_str().unwrap().contains(':') { 128 } else { 32 };
    let is_v6 = whole == 128 || paths.iter().any(|path| path.contains("fe80")) || metric == 1_024;
    let dst = match route["dst"].as_str().unwrap() {
        "default" if is_v6 => "::/0".to_owned(),
        "default" => "0.0.0.0/0".to_owned(),
        dst if dst.contains('/') => dst.to_owned(),
        dst => format!("{dst}/{whole}"),
    };
    Some(format!("route {table} {kind} {dst} {metric} {}", paths.join(" ")))
}

fn path(path: &Value) -> String {
    let gateway = path["gateway"].as_str().or_else(|| path["via"]["host"].as_str()).unwrap_or("-");
    let flags = path["flags"].to_string();
    let (dead, linkdown) = (flags.contains("\"dead\""), flags.contains("\"linkdown\""));
    format!("[{} {gateway} {dead} {linkdown}]", path["dev"].as_str().unwrap_or("-"))
}

/// The same from tables.
pub fn by_tables(tables: &KernelTables) -> Vec<String> {
    let name = |index| tables.link(index).map_or("-", |link| link.name.as_str());
    let mac = |mac: Option<_>| {
        mac.map_or_else(String::new, |mac: hotloop::packet::ethernet::MacAddress| mac.to_string())
    };
    let mut lines = Vec::new();
    for link in tables.links() {
        let (name, mtu) = (&link.name, link.mtu_bytes);
        let mac = mac(link.mac);
        lines.push(format!("link {name} {mtu} {mac} {} {}", link.is_up, link.is_running));
    }
    for it in tables.addresses() {
        lines.push(format!(
            "address {} {}/{}",
            name(it.interface_index),
            it.address,
            it.prefix_len
        ));
    }
    for route in tables.routes() {
        let hop = |hop: &hotloop_kernel::Hop| {
            let gateway = hop.gateway.map_or_else(|| "-".to_owned(), |gateway| gateway.to_string());
            format!("[{} {gateway} {} {}]", name(hop.interface_index), hop.is_dead, hop.is_linkdown)
        };
        let mut paths: Vec<_> = route.hops.iter().map(hop).collect();
        if paths.is_empty() {
            paths.push("[- - false false]".to_owned());
        }
        let kind = match route.kind {
            RouteKind::Unicast => "unicast",
            RouteKind::Local => "local",
            RouteKind::Broadcast => "broadcast",
            RouteKind::Multicast => "multicast",
            RouteKind::Blackhole => "blackhole",
            RouteKind::Unreachable => "unreachable",
            RouteKind::Prohibit => "prohibit",
            RouteKind::Throw => "throw",
        };
        let (table, metric) = (route.table, route.metric);
        let prefix = format!("{}/{}", route.prefix.network(), route.prefix.len());
        lines.push(format!("route {table} {kind} {prefix} {metric} {}", paths.join(" ")));
    }
    for (index, address, known) in tables.neighbours() {
        lines.push(format!("neighbour {} {address} {}", name(index), mac(known.mac)));
    }
    lines.sort();
    lines
}

/// The kernel's treatment of packets to this address: the name of the interface and the next hop,
/// or another result.
pub fn got(destination: IpAddr) -> String {
    let output = tool("ip")
        .unwrap()
        .args(["-j", "route", "get", &destination.to_string()])
        .output()
        .unwrap();
    if !output.status.success() {
        return String::from_utf8_lossy(&output.stderr).trim().to_owned();
    }
    let answer: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let answer = &answer[0];
    match answer["type"].as_str() {
        Some("anycast") => "local".to_owned(),
        Some(kind) if kind != "unicast" => kind.to_owned(),
        _ => {
            let gateway = answer["gateway"].as_str().or_else(|| answer["via"]["host"].as_str());
            let gateway = gateway.map_or_else(|| destination.to_string(), str::to_owned);
            format!("{} {gateway}", text(&answer["dev"]))
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("").to_owned()
}
