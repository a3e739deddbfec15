//! The longer texts of a balancer's answers, and the parts that all texts share.

use hotloop_ops::{Table, status_text};
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

const SERVICE_COLUMNS: [&str; 10] = [
    "name",
    "address",
    "protocol",
    "ports",
    "scheduler",
    "backends",
    "up",
    "usable",
    "connections",
    "packets",
];

/// The rows of the services.
pub fn services_text(rows: &Value) -> String {
    let mut text = table(rows, &SERVICE_COLUMNS);
    for row in rows.as_array().into_iter().flatten().filter(|row| !row["held_s"].is_null()) {
        text.push('\n');
        text.push_str(&held_text(&row["address"], &row["held_s"]));
    }
    text
}

/// A VIP that is ready and not announced yet.
fn held_text(vip: &Value, left_s: &Value) -> String {
    format!("{}: held for {} s, as it was withdrawn", cell(vip), cell(left_s))
}

/// The planned removal of a drained backend, as the end of a sentence.
pub fn removal_text(draining: &Value) -> String {
    let time = draining["left_s"].as_u64().map(|seconds| format!("in {seconds} s"));
    let empty = (draining["until_empty"] == true).then(|| "once it has no connections".to_owned());
    let when: Vec<_> = time.into_iter().chain(empty).collect();
    if when.is_empty() { String::new() } else { format!(", and is removed {}", when.join(", or ")) }
}

/// A count with its noun.
pub fn counted(count: &Value, noun: &str) -> String {
    format!("{} {noun}{}", cell(count), if count.as_u64() == Some(1) { "" } else { "s" })
}

/// The rows of the backends. Weights other than the configuration's are shown with the latter.
pub fn backends_text(rows: &Value) -> String {
    let mut rows = rows.clone();
    for row in rows.as_array_mut().into_iter().flatten() {
        let (weight, configured) = (cell(&row["weight"]), cell(&row["configured_weight"]));
        let is_changed = weight != configured;
        row["weight"] = if is_changed {
            format!("{weight} (file: {configured})").into()
        } else {
            weight.into()
        };
    }
    let columns = ["service", "address", "weight", "state", "connections", "packets", "probe"];
    let mut text = table(&rows, &columns);
    for row in rows.as_array().into_iter().flatten() {
        if let Some(verdict) = row["verdict"].as_str() {
            let (service, address) = (cell(&row["service"]), cell(&row["address"]));
            text.push_str(&format!("\n{address} of {service}: {verdict}"));
        }
        if !row["health"].is_null() {
            text.push_str(&difference_text(row));
        }
        if !row["draining"].is_null() {
            let (service, address) = (cell(&row["service"]), cell(&row["address"]));
            let end = removal_text(&row["draining"]);
            let left = counted(&row["connections"], "connection");
            text.push_str(&format!("\n{address} of {service}: drained, with {left} left{end}"));
        }
    }
    text
}

/// A backend on which this node's findings differ from the verdict.
fn difference_text(row: &Value) -> String {
    let health = &row["health"];
    let (state, here) = match health["is_up_here"] == true {
        true => ("down", "up"),
        false => ("up", "down"),
    };
    let down_on = listed(&health["down_on"]);
    format!(
        "\n{} of {}: counts as {state}, and this node finds it {here}: of {}, {} must find it down; that do: {down_on}",
        cell(&row["address"]),
        cell(&row["service"]),
        counted(&health["nodes"], "node"),
        cell(&health["needed"]),
    )
}

/// This node of a cluster, its peers, and the nodes that its store knows.
pub fn cluster_text(answer: &Value) -> String {
    let of = |key: &str| cell(&answer[key]);
    let has_peers = !answer["listen"].is_null();
    let mut text = match has_peers {
        true => peers_text(answer),
        false => format!("node {}: shares no connections (it has no cluster.peers)", of("node")),
    };
    let store = &answer["store"];
    if !store.is_null() {
        text = format!("{}\n\n{}", text.trim_end(), store_text(store));
        text.push_str(&table(&store["nodes"], &["name", "revision", "answer_to", "refused"]));
    }
    text
}

/// This node, among its peers.
fn peers_text(answer: &Value) -> String {
    let of = |key: &str| cell(&answer[key]);
    let ready = if answer["is_ready"] == true { "ready" } else { "waits for its peers" };
    let marked = if answer["is_marked"] == true { "all" } else { "not all" };
    let waiting = counted(&answer["waiting"], "change");
    let mut text = format!(
        "node {} at {}, tables {}: {ready}; {marked} exceptions are handed over, {waiting} waiting\n\
         of peers: {} stale, {} refused\n{}",
        of("node"),
        of("listen"),
        of("tables"),
        of("stale"),
        of("refused"),
        certificate_text(&answer["certificate_not_after"]),
    );
    let columns = [
        "name",
        "address",
        "state",
        "revision",
        "tables",
        "is_ready",
        "has_its_snapshot",
        "is_caught_up",
        "lag_records",
        "lag_ms",
        "sent",
        "received",
    ];
    text.push_str(&table(&answer["peers"], &columns));
    for peer in answer["peers"].as_array().into_iter().flatten() {
        if let Some(error) = peer["last_error"].as_str() {
            text.push_str(&format!("\n{}: {error}", cell(&peer["name"])));
        }
    }
    text
}

/// A line with the remaining time of this node's certificate.
fn certificate_text(not_after: &Value) -> String {
    let Some(not_after) = not_after.as_u64() else { return String::new() };
    // A clock that is not set shows the epoch.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let hours = not_after.abs_diff(now) / 3_600;
    let time = match hours {
        ..48 => counted(&hours.into(), "hour"),
        _ => counted(&(hours / 24).into(), "day"),
    };
    if now > not_after {
        format!("the certificate ended {time} ago: write another, and ctl reload\n")
    } else {
        format!("the certificate ends in {time}\n")
    }
}

/// The end of a balancer that leaves.
pub fn leave_text(leaving: &Value) -> String {
    let time = leaving["left_s"].as_u64().map(|seconds| format!("in {seconds} s, or "));
    format!("{}once no connection is left", time.unwrap_or_default())
}

/// A list of texts.
pub fn listed(texts: &Value) -> String {
    let texts: Vec<_> = texts.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// A list of objects, as a table of these members.
pub fn table(rows: &Value, columns: &[&str]) -> String {
    let mut table = Table::new(columns);
    for row in rows.as_array().into_iter().flatten() {
        table.row(columns.iter().map(|column| cell(&row[*column])));
    }
    table.to_string()
}

pub fn overview_text(overview: &Value) -> String {
    let of = |key: &str| cell(&overview[key]);
    let balancer = |key: &str| cell(&overview["balancer"][key]);
    let mut text = status_text(&overview["engine"]);
    text.push_str(&format!(
        "\n\nconfiguration {}: {} with {}, {} of them down\n",
        of("config"),
        counted(&overview["services"], "service"),
        counted(&overview["backends"], "backend"),
        of("down"),
    ));
    let remembered = overview["balancer"]["connections"].as_array();
    let remembered: u64 = remembered.into_iter().flatten().filter_map(Value::as_u64).sum();
    text.push_str(&format!(
        "connections: {remembered} remembered, {} new so far, {} of them not remembered\n",
        balancer("admitted"),
        balancer("stateless"),
    ));
    for table in overview["tables"].as_array().into_iter().flatten() {
        let (worker, name, got) =
            (cell(&table["worker"]), cell(&table["table"]), cell(&table["got"]));
        text.push_str(&format!("memory: {name} of worker {worker}: {got}\n"));
    }
    if !overview["announced"].is_null() {
        text.push_str(&format!("announced: {}\n", listed(&overview["announced"])));
    }
    for held in overview["held"].as_array().into_iter().flatten() {
        text.push_str(&held_text(&held["vip"], &held["left_s"]));
        text.push('\n');
    }
    if !overview["leaving"].is_null() {
        let when = leave_text(&overview["leaving"]);
        text.push_str(&format!("leaving: the program ends {when}\n"));
    }
    text.push_str(&health_text(&overview["health"]));
    text.push_str(&store_text(&overview["store"]));
    if let Some(failure) = overview["operator_failure"].as_str() {
        text.push_str(&format!(
            "changes by operators: a restart of the node undoes the latest: {failure}\n"
        ));
    }
    text.push_str(&format!("reloads: {}", of("reloads")));
    if overview["is_loading"] == true {
        text.push_str("; another one is under way");
    }
    if let Some(failure) = overview["reload_failure"].as_str() {
        text.push_str(&format!("; the last one failed: {failure}"));
    }
    text
}

/// The nodes whose health checks count, if there may be several.
fn health_text(health: &Value) -> String {
    if health.is_null() {
        return String::new();
    }
    let needed = match health["is_shared"] == true {
        true => format!(
            "{} of {} must find a backend down",
            cell(&health["needed"]),
            counted(&health["nodes"], "node")
        ),
        false => "what this node finds counts, as it can't exchange that with others".to_owned(),
    };
    format!("health: {needed}; this node finds {} down\n", cell(&health["down_here"]))
}

/// The store of the configuration; empty without a store.
fn store_text(store: &Value) -> String {
    if store.is_null() {
        return String::new();
    }
    let (address, revision) = (cell(&store["address"]), cell(&store["revision"]));
    let mut text = format!("store {address}: revision {revision} in force");
    if store["newest"] != store["revision"] {
        text.push_str(&format!(", {} refused or under way", cell(&store["newest"])));
    }
    if !store["proposed"].is_null() {
        text.push_str(&format!(", {} being prepared", cell(&store["proposed"])));
    }
    if store["is_replaced"] == true {
        text.push_str("; another node has this one's name, and changes wait for that one");
    } else if store["is_registered"] == false {
        text.push_str("; changes do not wait for this node");
    }
    if let Some(failure) = store["failure"].as_str() {
        text.push_str(&format!("; not read for {} s: {failure}", cell(&store["unread_s"])));
    }
    if let Some(failure) = store["copy_failure"].as_str() {
        text.push_str(&format!("; no copy: {failure}"));
    }
    text + "\n"
}
