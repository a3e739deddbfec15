//! The balancer's metrics, in a manual scrape and in Prometheus.

use super::nodes::node;
use super::program::{Program, TCP_COUNT, UDP_COUNT, config};
use crate::deployed::service;
use crate::sync::authority::Authority;
use hotloop_tests::prometheus::{Prometheus, get, promtool};
use hotloop_tests::schema::{Said, check};
use hotloop_tests::{free_address, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const DASHBOARD: &str = include_str!("../../../../packaging/grafana/hotloop.json");

/// A port that no packet leaves by: the stage that looks for its next hop has its own figures.
const SPARE_PORT: &str = r#"
    [[port]]
    name = "spare"
    device = "net_null1,no-rx=1"
    next_hop = "192.0.2.254"
    address = "192.0.2.253"
    side = "client"
"#;

/// The key: a stage's name, and a reason or another count there.
type Sums = BTreeMap<(String, String), u64>;

/// The counts of places or stages, the same for `ctl counters` and the report.
fn counted(stages: &Value) -> Sums {
    let mut sums = Sums::new();
    for stage in stages.as_array().unwrap() {
        let mut add = |what: &str, count: &Value| {
            let name = stage["name"].as_str().unwrap().to_owned();
            *sums.entry((name, what.to_owned())).or_default() += count.as_u64().unwrap();
        };
        for what in ["received", "emitted", "created", "crossed", "unattributed", "uncreated"] {
            add(what, &stage[what]);
        }
        for (reason, count) in stage["dropped"].as_object().unwrap() {
            add(&format!("dropped as {reason}"), count);
        }
    }
    sums.retain(|_, count| *count > 0);
    sums
}

/// The same counts, from Prometheus.
fn scraped(prometheus: &Prometheus) -> Sums {
    let mut sums = Sums::new();
    let sources = [
        ("stage_packets_received", "received"),
        ("stage_packets_emitted", "emitted"),
        ("packets_created", "created"),
        ("packets_crossed", "crossed"),
        ("packets_unattributed", "unattributed"),
        ("packets_uncreated", "uncreated"),
        ("packets_dropped", "dropped as "),
    ];
    for (metric, what) in sources {
        for sample in prometheus.query(&format!("hotloop_{metric}_total")) {
            let label = |name: &str| sample.labels[name].as_str().unwrap_or_default().to_owned();
            let key = (label("stage"), format!("{what}{}", label("reason")));
            *sums.entry(key).or_default() += sample.value as u64;
        }
    }
    sums.retain(|_, count| *count > 0);
    sums
}

/// Waits until Prometheus has scraped the program once more.
fn wait_for_scrape(program: &Program, prometheus: &Prometheus) {
    let uptime_s = || prometheus.value("hotloop_uptime_seconds").unwrap_or(0.0);
    let metrics = get(program.metrics_address(), "/metrics").unwrap();
    let mut lines = metrics.lines();
    let now_s = lines.find_map(|line| line.strip_prefix("hotloop_uptime_seconds ")).unwrap();
    let now_s: f64 = now_s.parse().unwrap();
    wait_until("a scrape", || uptime_s() > now_s);
}

#[test]
fn a_scrape_is_what_ctl_says_and_the_report_and_the_dashboard_finds_it() {
    let program = Program::start_and_take_all(&(config() + SPARE_PORT));
    let prometheus = match Prometheus::start(program.metrics_address()) {
        Ok(prometheus) => prometheus,
        Err(why) => return println!("skipped: {why}"),
    };
    assert_eq!(promtool(&get(program.metrics_address(), "/metrics").unwrap()).as_deref(), Ok(""));
    wait_for_scrape(&program, &prometheus);

    // Nothing has passed since the first of these three.
    let counters = program.json(&["counters"]);
    let backends = program.json(&["backends"]);
    let seen = scraped(&prometheus);
    let value = |expression: &str| prometheus.value(expression).map(|value| value as u64);
    assert_eq!(seen, counted(&counters["places"]));
    assert_eq!(value("sum(hotloop_packets_received_total)"), Some(64));
    assert_eq!(value("sum(hotloop_packets_sent_total)"), Some(TCP_COUNT + 10 + UDP_COUNT));
    assert_eq!(value("ipip_lb_connections_admitted_total"), Some(TCP_COUNT + UDP_COUNT));
    let up_count = value("sum(ipip_lb_backend_up)");
    assert_eq!((value("hotloop_ledger_plausible"), up_count), (Some(1), Some(4)));
    for row in backends.as_array().unwrap() {
        let (service, address) = (row["service"].as_str().unwrap(), row["address"].as_str());
        let of = format!("{{service={service:?},backend={:?}}}", address.unwrap());
        for (metric, key) in
            [("packets_total", "packets"), ("connections", "connections"), ("weight", "weight")]
        {
            let expression = format!("ipip_lb_backend_{metric}{of}");
            assert_eq!(value(&expression), row[key].as_u64(), "{expression}");
        }
    }
    load_is_that_of_the_cores(&program, &prometheus);
    dashboard_finds_data(&prometheus);

    let (port_received, port_sent) = (
        value("sum(hotloop_port_packets_received_total)"),
        value("sum(hotloop_port_packets_sent_total)"),
    );
    let to_backends = value("sum(ipip_lb_backend_packets_total)");
    let report = program.end("-TERM");
    assert_eq!(seen, counted(&report["stages"]));
    assert_eq!(port_received, report["devices"]["received"].as_u64());
    assert_eq!(port_sent, report["devices"]["sent"].as_u64());
    let reported = report["balancer"]["backends"].as_array().unwrap().iter();
    let reported: u64 = reported.map(|it| it["packets"].as_u64().unwrap()).sum();
    assert_eq!(to_backends, Some(reported));
}

/// The load of cores, and the fill of rings and mempools, once no packets come.
fn load_is_that_of_the_cores(program: &Program, prometheus: &Prometheus) {
    let value = |expression: &str| prometheus.value(expression).map(|value| value as u64);
    let taken = value("sum(hotloop_stage_packets_received_total{place=~\"source|rings\"})");
    assert_eq!(value("sum(hotloop_core_polled_packets_total)"), taken);
    let busy = "hotloop_core_polls_total - hotloop_core_empty_polls_total";
    for sample in prometheus.query(&format!("hotloop_core_polled_packets_total / ({busy})")) {
        assert!((1.0..=128.0).contains(&sample.value), "packets a poll: {sample:?}");
    }
    wait_until("a second without packets", || value("sum(hotloop_core_load_ratio)") == Some(0));
    let load = program.json(&["load"]);
    let cores = load.as_array().unwrap();
    let shown = |metric: &str| prometheus.query(metric).len();
    for metric in ["load_ratio", "polls_total", "poll_packets_max", "timed_packets_total"] {
        assert_eq!(shown(&format!("hotloop_core_{metric}")), cores.len(), "{metric}");
    }
    // The workers' rings; not every device reports its waiting packets.
    assert_eq!(value("sum(hotloop_packets_waiting{stage=~\"group.*\"})"), Some(0));
    let room = value("min(hotloop_packets_waiting_capacity{stage=~\"group.*\"})");
    let max = value("max(hotloop_packets_waiting_max{stage=~\"group.*\"})");
    assert!(room > Some(0) && max <= room, "{max:?} of {room:?}");
    let status = program.json(&["status"]);
    let mempools = status["engine"]["mempools"].as_array().unwrap();
    for (index, mempool) in mempools.iter().enumerate() {
        let of = format!("{{mempool=\"{index}\"}}");
        for (metric, key) in [
            ("mbufs", "mbufs"),
            ("mbufs_in_use", "in_use"),
            ("mbufs_free_min", "free_least"),
            ("allocations_failed_total", "failed"),
        ] {
            let expression = format!("hotloop_mempool_{metric}{of}");
            assert_eq!(value(&expression), mempool[key].as_u64(), "{expression}");
        }
    }
    assert!(!mempools.is_empty());
}

/// Evaluates every expression of the dashboard, as Grafana would.
fn dashboard_finds_data(prometheus: &Prometheus) {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 40, "{expressions:?}");
    for expression in expressions {
        let asked = expression.replace("$instance", ".*").replace("$__rate_interval", "1m");
        assert!(!asked.contains('$'), "a variable that this test does not know: {asked}");
        // A rate needs two scrapes.
        wait_until(expression, || !prometheus.query(&asked).is_empty());
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let definitions: Vec<_> = variables.filter_map(|it| it["definition"].as_str()).collect();
    assert_eq!(definitions, ["label_values(hotloop_build_info, instance)"]);
    let found = prometheus.query("hotloop_build_info");
    assert!(found[0].labels["instance"].is_string(), "{found:?}");
    assert_eq!(found[0].labels["program"], "ipip-lb");
}

#[test]
fn removed_backends_keep_their_packets() {
    let program = Program::start();
    let sum = || {
        let metrics = get(program.metrics_address(), "/metrics").unwrap();
        let lines = metrics.lines().filter(|it| it.starts_with("ipip_lb_backend_packets_total{"));
        let counts: Vec<u64> =
            lines.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
        (counts.len(), counts.iter().sum::<u64>())
    };
    let before = sum();
    assert_eq!(before, (4, TCP_COUNT + 10 + UDP_COUNT));
    program.text(&["remove", "10.0.0.1", "--service", "web"]);
    assert_eq!(sum(), before);
    program.end("-INT");
}

/// Each series of a scrape that begins with `name`, with its value.
fn series(program: &Program, name: &str) -> BTreeMap<String, u64> {
    let metrics = get(program.metrics_address(), "/metrics").unwrap();
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
    let lines = lines.filter(|(labels, _)| labels.is_empty() || labels.starts_with('{'));
    lines.map(|(labels, value)| (labels.to_owned(), value.parse().unwrap())).collect()
}

#[test]
fn services_and_backends_have_series_up_to_the_limits_and_sums_are_whole() {
    let limits = "[metrics]\nservices_max = 2\nbackends_max = 1\n";
    let program = Program::start_and_take_all(&(config() + limits));
    let of = |name: &str| series(&program, &format!("ipip_lb_{name}"));
    let expected = |all: &[(&str, u64)]| -> BTreeMap<_, _> {
        all.iter().map(|(labels, value)| ((*labels).to_owned(), *value)).collect()
    };
    let backends = [("{service=\"dns\"}", 1), ("{service=\"web\"}", 2)];
    assert_eq!(of("service_backends"), expected(&backends));
    assert_eq!(of("service_backends_up"), expected(&backends));
    let first = "{service=\"web\",backend=\"10.0.0.1\"}";
    assert_eq!(of("backend_up"), expected(&[(first, 1)]));
    for (metric, sum) in [
        ("backend_packets_total", TCP_COUNT + 10 + UDP_COUNT),
        ("backend_connections", TCP_COUNT + UDP_COUNT),
    ] {
        let packets = of(metric);
        let labels: Vec<_> = packets.keys().map(String::as_str).collect();
        let others = ["(others)", "dns", "web"];
        let others = others.map(|it| format!("{{service=\"{it}\",backend=\"(others)\"}}"));
        assert_eq!(labels, [&*others[0], &*others[1], &*others[2], first]);
        assert_eq!(packets.values().sum::<u64>(), sum, "{packets:?}");
    }
    assert_eq!(of("connections").values().sum::<u64>(), TCP_COUNT + UDP_COUNT);
    assert_eq!(
        of("connections").keys().collect::<Vec<_>>(),
        [
            "{worker=\"0\",ip=\"4\"}",
            "{worker=\"0\",ip=\"6\"}",
            "{worker=\"1\",ip=\"4\"}",
            "{worker=\"1\",ip=\"6\"}",
        ]
    );
    assert!(of("connections_max").values().eq(&[4096; 4]));
    let ports = [
        ("{port=\"net_null0\",name=\"backends\"}", 1),
        ("{port=\"net_pcap0\",name=\"clients\"}", 1),
    ];
    assert_eq!(of("port_info"), expected(&ports));
    // A limit is taken over by a reload.
    program.configure(&(config() + &limits.replace("backends_max = 1", "backends_max = 3")));
    program.text(&["reload"]);
    assert_eq!(of("backend_up").len(), 3);
    program.end("-INT");
}

/// 10,000 services with 5 backends each.
#[test]
fn a_scrape_of_10_000_services_takes_less_than_a_second() {
    let mut text = config();
    for index in 0..10_000 {
        let address = format!("20.0.{}.{} tcp 80", index / 250, index % 250 + 1);
        let backends = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
        text += &service(&format!("s{index}"), &address, "", &backends);
    }
    let program = Program::start_with(&text);
    let address = program.metrics_address();
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        let metrics = get(address, "/metrics").unwrap();
        shortest = shortest.min(start.elapsed());
        let count = |name: &str| metrics.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(count("ipip_lb_service_backends_up{"), 10_000);
        assert_eq!(count("ipip_lb_backend_up{"), 2_000);
    }
    println!("the shortest of five scrapes took {shortest:?}");
    assert!(shortest < Duration::from_secs(1), "{shortest:?}");
    program.end("-INT");
}

/// The series without a peer and the series per peer, with the key of each in the output of `ctl
/// cluster`.
const OF_NODES: [(&str, &str); 6] = [
    ("ready", "is_ready"),
    ("waiting", "is_waiting"),
    ("marked", "is_marked"),
    ("stale_total", "stale"),
    ("refused_total", "refused"),
    ("certificate_not_after_timestamp_seconds", "certificate_not_after"),
];
const OF_PEERS: [(&str, &str); 10] = [
    ("caught_up", "is_caught_up"),
    ("lag_records", "lag_records"),
    ("to_enter_records", "to_enter"),
    ("records_sent_total", "sent"),
    ("records_received_total", "received"),
    ("sent_bytes_total", "sent_bytes"),
    ("received_bytes_total", "received_bytes"),
    ("snapshots_sent_total", "snapshots_sent"),
    ("snapshots_received_total", "snapshots_received"),
    ("overflows_total", "overflows"),
];

#[test]
fn a_scrape_says_of_peers_what_ctl_does() {
    let addresses = [free_address(), free_address()];
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("all nodes"));
    let nodes = [1, 2].map(|number| {
        let node = node(number, addresses, (folder.path(), &authority));
        Program::start_and_take_all(&(config() + &node))
    });
    for node in &nodes {
        node.text(&["drain", "10.0.0.2"]);
    }
    let is_caught_up = |it: &Program| {
        let said = it.json(&["cluster"]);
        let peer = &said["peers"][0];
        let are_alike = said["tables"].is_string() && said["tables"] == peer["tables"];
        said["is_marked"] == true
            && are_alike
            && peer["is_ready"] == true
            && peer["is_caught_up"] == true
            && peer["snapshots_sent"] != 0
            && said["references"] == json!([0])
            && peer["to_enter"] == 0
    };
    for node in &nodes {
        node.wait_until("both know all", |_| nodes.iter().all(is_caught_up));
        // Each second it sends its peer a sign of life, and bytes are counted.
        let seen = (0..100).find_map(|_| {
            let said = node.json(&["cluster"]);
            let metrics = get(node.metrics_address(), "/metrics").unwrap();
            (node.json(&["cluster"]) == said).then_some((metrics, said))
        });
        let (metrics, said) = seen.expect("a moment without changes");
        match promtool(&metrics) {
            Ok(complaints) => assert_eq!(complaints, ""),
            Err(why) => println!("skipped: {why}"),
        }
        let peer = &said["peers"][0];
        let shown = |series: String| -> u64 {
            let found =
                metrics.lines().find_map(|line| line.strip_prefix(&series)?.strip_prefix(' '));
            found.unwrap_or_else(|| panic!("no {series} in {metrics}")).parse().unwrap()
        };
        let number =
            |value: &Value| value.as_u64().unwrap_or_else(|| value.as_bool().unwrap().into());
        for (metric, key) in OF_NODES {
            assert_eq!(shown(format!("ipip_lb_cluster_{metric}")), number(&said[key]), "{metric}");
        }
        assert_eq!(shown("ipip_lb_cluster_reference_table".to_owned()), 0);
        assert_eq!(shown("ipip_lb_cluster_reference_moving".to_owned()), 0);
        let label = format!("{{peer={}}}", peer["name"]);
        for (metric, key) in OF_PEERS {
            assert_eq!(
                shown(format!("ipip_lb_peer_{metric}{label}")),
                number(&peer[key]),
                "{metric}"
            );
        }
        assert_eq!(shown(format!("ipip_lb_peer_in_sync{label}")), 1);
    }
    for node in nodes {
        node.end("-INT");
    }
}

#[test]
fn the_schema_has_what_the_program_says() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("all nodes"));
    let node = node(1, [free_address(), free_address()], (folder.path(), &authority));
    let program = Program::start_and_take_all(&(config() + SPARE_PORT + &node));
    let metrics = get(program.metrics_address(), "/metrics").unwrap();
    // One row of `backends` shows when its backend is removed.
    let drain = program.json(&["drain", "10.0.0.2", "--for", "1h"]);
    let commands = "status counters xstats services backends next-hops connections cluster";
    let answers = commands.split(' ').map(|command| (command, program.json(&[command])));
    let mut answers: Vec<_> = answers.collect();
    let lookup = program.json(&["lookup", "tcp", "198.51.100.1:4000", "203.0.113.10:80"]);
    answers.extend([("lookup", lookup), ("drain", drain)]);
    for (command, arguments) in [
        ("weight", &["weight", "10.0.0.2", "3"][..]),
        ("remove", &["remove", "10.0.0.1"]),
        ("reload", &["reload"]),
    ] {
        answers.push((command, program.json(arguments)));
    }
    let report = program.end("-INT");
    check("ipip-lb", &Said { metrics, report, answers });
}
