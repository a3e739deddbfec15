//! The understanding of valid configurations, and the notes on those that may surprise.

use super::cases::SOUND;
use super::check;
use hotloop::dpdk::RssFields;
use hotloop::engine::Idle;
use hotloop_balancer::spec::{AllDown, IcmpEcho, SERVICES_MAX, Scheduler, Side, Timeouts};
use hotloop_health::settings::{Health, Probe, Trust, Via};
use ipip_lb::config::{Announce, Announced, BACKENDS_MAX, Config, DeploymentKind};
use std::fmt::Write;
use std::fs;
use std::process::Command;

/// A configuration with every key.
const WHOLE: &str = r#"
[engine]
idle = "pause"

[balancer]
source_v4 = "192.0.2.0/26"
source_v6 = "2001:db8:1::/64"
mtu = 1500
decapsulate = ["192.0.2.1"]
icmp_echo = "forward"
clamp_mss = true
maglev_slots = 1009
new_connections_per_second_max = 5_000
  [balancer.timeouts_s]
  tcp_opening = 1
  tcp_established = 2
  tcp_closing = 3
  udp = 4
  other = 5

[health]
probe_source = ["192.0.2.200", "2001:db8::9"]

[limits]
service_new_connections_per_second_max = 20_000
source_new_connections_per_second_max = 50
source_prefix_v4 = 24
source_prefix_v6 = 56

[announce]
vips = "always"
interface = "vips0"
linger_ms = 250
hold_s = 7

[[port]]
name = "uplink"
device = "net_null0"
next_hop_mac = "02:00:00:00:00:01"
kernel_interface = "edge0"
kernel_peers = [{ address = "192.0.2.254", gtsm = true }, { address = "2001:db8::/64" }]
vlan = 42
rx_descriptors = 64
tx_descriptors = 2048
mbufs = 40_000
rss = "udp,ip"

[[service]]
name = "web"
address = "203.0.113.10"
protocol = "tcp"
ports = "443"
scheduler = "source"
persistence_s = 300
all_down = "drop"
new_connections_per_second_max = 900
  [service.health]
  kind = "https"
  port = 8443
  via = "direct"
  interval_ms = 5000
  timeout_ms = 4000
  rise = 1
  fall = 5
  path = "/healthz?deep=1"
  expect_status = 204
  ca_file = "ca.pem"
  [[service.backend]]
  address = "10.0.0.1"
  weight = 3
  [[service.backend]]
  address = "10.0.0.2"

[[service]]
name = "dns"
address = "203.0.113.11"
protocol = "udp"
ports = "53"
scheduler = "least-connections"
health = { kind = "udp", interval_ms = 500 }
backend = [{ address = "10.0.0.1" }]
"#;

/// A folder with `text` as its configuration, and a file of certificates beside it.
fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("lb.toml"), text).unwrap();
    fs::write(folder.path().join("ca.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    folder
}

pub fn printed(text: &str) -> String {
    let output = check(folder(text).path());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_sound_one_is_understood() {
    let text = printed(SOUND);
    for line in [
        "engine: pipeline, 1 + 2 cores, idle: spin\n",
        "port uplink: net_null0, next hop 02:00:00:00:00:01, side both",
        "service web: 203.0.113.10, protocol tcp, ports 80, maglev\n",
        "backend 2001:db8::a: weight 1, 50.0 % of flows",
        "\n  1 Maglev table of up to 65537 slots 128.0 KiB\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("note:") && !text.contains("health:"), "{text}");
}

#[test]
fn every_key_is_printed() {
    let text = printed(WHOLE);
    for line in [
        "engine: run-to-completion, 2 cores, idle: pause\n",
        "balancer: tunnels from 192.0.2.0/26 and 2001:db8:1::/64, path MTU 1500 bytes\n",
        "  echo requests: forward; MSS of SYN-ACKs: lowered to what fits\n",
        "  remembers 65536 connections a worker of each IP version\n",
        "  at most 5000 new ones a worker and second\n",
        "limits: 20000 new connections a second to each service\n",
        "limits: 50 new connections a second from each /24 of IPv4, /56 of IPv6\n",
        "  at most 900 new connections a second\n",
        "TCP opening 1 s, established 2 s, closing 3 s; UDP 4 s; others 5 s\n",
        "  2 Maglev tables of up to 1009 slots 2.0 KiB\n",
        "side both, the rest to interface edge0, peer 192.0.2.254 (TTL 255), peer 2001:db8::/64, RX descriptors 64, TX descriptors 2048, mbufs 40000, RSS ip,udp
",
        "announce: VIPs, always, by routes to interface vips0; one that was withdrawn, once it has been ready for 7 s; at the end, 250 ms for what still comes
",
        "service web: 203.0.113.10, protocol tcp, ports 443, source, kept 300 s\n",
        "  health: https to port 8443, GET /healthz?deep=1 answered 204, trusting ca.pem, \
         every 5000 ms within 4000 ms, up after 1, down after 5\n",
        "  when all backends are down: drop\n",
        "  backend 10.0.0.1: weight 3, 75.0 % of flows\n",
        "service dns: 203.0.113.11, protocol udp, ports 53, least-connections\n",
        "  health: udp to port 53, every 500 ms within 500 ms, up after 2, down after 3\n",
        "  backend 10.0.0.1: weight 1, 100.0 % of flows\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("note:"), "{text}");
}

#[test]
fn every_key_is_understood() {
    let folder = folder(WHOLE);
    let config = Config::load(&folder.path().join("lb.toml")).unwrap();
    assert_eq!(config.engine.idle, Idle::Pause);
    let balancer = &config.balancer;
    assert_eq!((balancer.source_v4.len(), balancer.source_v6.unwrap().len()), (26, 64));
    assert_eq!((balancer.icmp_echo, balancer.clamp_mss), (IcmpEcho::Forward, true));
    assert_eq!((balancer.maglev_slots, balancer.new_connections_per_second_max), (1009, 5000));
    let Timeouts { tcp_opening_s, tcp_established_s, tcp_closing_s, udp_s, other_s } =
        balancer.timeouts;
    assert_eq!([tcp_opening_s, tcp_established_s, tcp_closing_s, udp_s, other_s], [1, 2, 3, 4, 5]);
    let limits = config.limits;
    assert_eq!((limits.service_max, limits.source_max), (Some(20_000), Some(50)));
    assert_eq!((limits.source_prefix_v4, limits.source_prefix_v6), (24, 56));
    let announce =
        Announce { vips: Announced::Always, interface: "vips0".into(), linger_ms: 250, hold_s: 7 };
    assert_eq!(config.announce, Some(announce));
    assert_eq!(config.ports[0].kernel_interface.as_deref(), Some("edge0"));
    assert_eq!(config.ports[0].vlan, Some(42));
    let port = config.ports[0].settings;
    assert_eq!((port.rx_descriptors, port.tx_descriptors), (Some(64), Some(2048)));
    assert_eq!((port.mbufs, port.rss), (Some(40_000), Some(RssFields::IP | RssFields::UDP)));
    let web = &config.services[0];
    assert_eq!((web.scheduler, web.persistence_s), (Scheduler::Source, 300));
    assert_eq!((web.all_down, web.new_connections_per_second_max), (AllDown::Drop, Some(900)));
    let health = &config.health["web"];
    let Health { probe, port, interval_ms, timeout_ms, rise, fall, .. } = health;
    assert_eq!(
        [*interval_ms, *timeout_ms, *rise, *fall, u32::from(*port)],
        [5000, 4000, 1, 5, 8443]
    );
    let Probe::Https(http, Trust::CaFile(path)) = probe else { panic!("{probe:?}") };
    assert_eq!((http.path.as_str(), http.expect_status), ("/healthz?deep=1", 204));
    assert_eq!(path, &folder.path().join("ca.pem"));
    assert_eq!(health.via, Via::Direct);
    let both = WHOLE.replace("kind = \"udp\",", "kind = \"tcp\", via = \"both\",");
    let config = Config::parse("lb.toml", &both.replace("ca_file = \"ca.pem\"", "insecure = true"));
    let health = config.unwrap().health.remove("dns").unwrap();
    let ways: Vec<_> = health.ways().map(|way| way.via.to_string()).collect();
    assert_eq!(ways, ["direct", "tunnel"]);
    let path = health.via.tunnel().unwrap();
    assert_eq!(path.probe_source.to_string(), "192.0.2.200");
    assert_eq!(path.vip.to_string(), "203.0.113.11");
}

#[test]
fn json_has_every_key() {
    let folder = folder(WHOLE);
    let config = Config::load(&folder.path().join("lb.toml")).unwrap();
    let json = ipip_lb::check::Understood(&config).to_json();
    assert_eq!(json["engine"]["idle"], "pause");
    let balancer = &json["balancer"];
    assert_eq!(balancer["source_v4"], "192.0.2.0/26");
    assert_eq!((&balancer["icmp_echo"], &balancer["clamp_mss"]), (&"forward".into(), &true.into()));
    assert_eq!(balancer["maglev_slots"], 1009);
    assert_eq!(balancer["new_connections_per_second_max"], 5000);
    assert_eq!(balancer["timeouts_s"]["tcp_closing"], 3);
    let announce = serde_json::json!({ "vips": "always", "interface": "vips0", "linger_ms": 250, "hold_s": 7 });
    assert_eq!(json["announce"], announce);
    assert_eq!(json["memory"]["maglev_tables"], 2);
    assert_eq!(json["memory"]["maglev_bytes"], 2 * 1009 + 2);
    let each = json["memory"]["connections_bytes_per_worker"].as_u64().unwrap();
    assert!(each > 65_536 * 2 * 48, "{each}");
    assert_eq!(json["memory"]["connections_bytes"], 2 * each);
    assert_eq!(json["limits"]["service_new_connections_per_second_max"], 20_000);
    assert_eq!(json["limits"]["source_prefix_v6"], 56);
    assert_eq!(json["balancer"]["probe_source"][1], "2001:db8::9");
    assert_eq!(json["services"][0]["health"]["via"], "direct");
    assert_eq!(json["services"][0]["new_connections_per_second_max"], 900);
    let port = &json["ports"][0];
    assert_eq!(port["kernel_peers"][0]["gtsm"], true);
    let descriptors = (&port["rx_descriptors"], &port["tx_descriptors"]);
    assert_eq!(descriptors, (&64.into(), &2048.into()));
    assert_eq!((&port["mbufs"], &port["rss"]), (&40_000.into(), &"ip,udp".into()));
    let web = &json["services"][0];
    assert_eq!((&web["scheduler"], &web["all_down"]), (&"source".into(), &"drop".into()));
    assert_eq!(web["persistence_s"], 300);
    assert_eq!((&web["health"]["kind"], &web["health"]["port"]), (&"https".into(), &8443.into()));
    assert_eq!(web["health"]["path"], "/healthz?deep=1");
    assert_eq!(web["backends"][0]["share"], 757.0 / 1009.0);
    assert_eq!(json["services"][1]["health"]["timeout_ms"], 500);
    assert!(json["services"][1]["health"].get("path").is_none());
}

#[test]
fn a_store_is_understood_with_its_files_and_they_are_not_shown() {
    let cluster = "[cluster]\nnode = \"a\"\nstore = \"etcd://a:1\"\n";
    let tls = format!("{cluster}store_authority = \"ca.pem\"\n");
    let whole = format!(
        "{tls}store_certificate = \"ca.pem\"\nstore_key = \"a.key\"\nstore_user = \"lb\"\n\
         store_password_file = \"/pass.word\"\n"
    );
    for (text, printed, shown) in [
        (cluster, "without TLS; a copy", (false, false, None)),
        (&tls, "by TLS without a certificate of this node; a copy", (true, false, None)),
        (&whole, "by TLS with a certificate of this node, as user lb; ", (true, true, Some("lb"))),
    ] {
        let folder = folder(&format!("{text}{SOUND}"));
        let config = Config::load(&folder.path().join("lb.toml")).unwrap();
        let understood = ipip_lb::check::Understood(&config);
        let line = format!("store: what all nodes share comes from etcd://a:1, {printed}");
        assert!(understood.to_string().contains(&line), "{understood}");
        let store = &understood.to_json()["store"];
        assert_eq!(store["has_tls"], shown.0);
        assert_eq!(store["has_certificate"], shown.1);
        assert_eq!(store["user"].as_str(), shown.2);
        assert!(
            !understood.to_string().contains("pass.word") && !store.to_string().contains("ca.pem")
        );
    }
    let folder = folder(&format!("{whole}{SOUND}"));
    let config = Config::load(&folder.path().join("lb.toml")).unwrap();
    let tls = config.store.unwrap().access.tls.unwrap();
    let file = |name: &str| folder.path().join(name);
    assert_eq!(
        (tls.authority, tls.certificate),
        (file("ca.pem"), Some((file("ca.pem"), file("a.key"))))
    );
    assert_eq!(tls.user.unwrap().password_file.to_str(), Some("/pass.word"));
}

/// The defaults are as documented.
#[test]
fn defaults_are_as_documented() {
    let left_out = [1, 2, 3, 4, 11, 12, 18, 28];
    let kept = SOUND.lines().enumerate().filter(|(index, _)| !left_out.contains(&(index + 1)));
    let kept = kept
        .map(|(_, line)| if line.starts_with("sched") { "health.kind = \"http\"" } else { line });
    let text: Vec<_> = kept.collect();
    let config = Config::parse("lb.toml", &text.join("\n")).unwrap();
    let Config { engine, balancer, limits, ports, services, health, .. } = config;
    let Config { announce, cluster, store, .. } = config;
    assert_eq!(engine.deployment, DeploymentKind::RunToCompletion);
    assert_eq!((limits.service_max, limits.source_max), (None, None));
    assert_eq!((limits.source_prefix_v4, limits.source_prefix_v6), (32, 64));
    assert_eq!((engine.dispatchers, engine.workers, engine.worker_stall_ms_max), (1, 2, 1000));
    assert_eq!((engine.idle, engine.require_hugepages), (Idle::Spin, false));
    assert_eq!(balancer.connections_max, 65_536);
    assert!(balancer.tunnel_peers.is_empty());
    assert_eq!((balancer.icmp_echo, balancer.clamp_mss), (IcmpEcho::Reply, false));
    assert_eq!(
        (balancer.maglev_slots, balancer.new_connections_per_second_max),
        (65_537, 5_000_000)
    );
    let Timeouts { tcp_opening_s, tcp_established_s, tcp_closing_s, udp_s, other_s } =
        balancer.timeouts;
    let seconds = [tcp_opening_s, tcp_established_s, tcp_closing_s, udp_s, other_s];
    assert_eq!(seconds, [10, 900, 20, 60, 60]);
    assert_eq!((ports[0].side, ports[0].settings), (Side::Both, Default::default()));
    assert_eq!((announce, cluster, store), (None, None, None));
    let service = &services[0];
    assert_eq!((service.scheduler, service.persistence_s), (Scheduler::Maglev, 0));
    assert_eq!(service.all_down, AllDown::Forward);
    assert!(service.backends.iter().all(|backend| backend.weight == 1));
    let Health { probe, port, interval_ms, timeout_ms, rise, fall, .. } = &health[&service.name];
    assert_eq!([u32::from(*port), *interval_ms, *timeout_ms, *rise, *fall], [80, 2000, 1000, 2, 3]);
    let Probe::Http(http) = probe else { panic!("{probe:?}") };
    assert_eq!((http.path.as_str(), http.expect_status), ("/", 200));
    assert!(Config::parse("lb.toml", SOUND).unwrap().health.is_empty());
}

/// [`SOUND`] with these lines replaced.
pub fn with(changes: &[(usize, &str)]) -> String {
    let mut lines: Vec<&str> = SOUND.lines().collect();
    for (number, line) in changes {
        lines[number - 1] = line;
    }
    lines.join("\n")
}

#[test]
fn hashes_are_said_to_be_public_without_a_key_and_the_key_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let printed = |key: &str, report: &str| {
        let config = SOUND.replacen("mtu = 1500", &format!("mtu = 1500\n{key}"), 1);
        fs::write(folder.path().join("lb.toml"), config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
        command
            .current_dir(folder.path())
            .args(["check", "--config", "lb.toml", "--report", report]);
        let output = command.output().unwrap();
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
        String::from_utf8(output.stdout).unwrap()
    };
    let key = "hash_key = \"0f1e2d3c4b5a69788796a5b4c3d2e1f0\"";
    let public = "hashes of flows are public: whoever chooses ports can choose backend and worker";
    assert!(printed("", "text").contains(public));
    assert!(printed(key, "text").contains("hashes of flows are secret"));
    assert!(printed("", "json").contains("\"has_hash_key\": false"));
    assert!(printed(key, "json").contains("\"has_hash_key\": true"));
    for report in ["text", "json"] {
        assert!(!printed(key, report).to_lowercase().contains("0f1e2d"));
    }
}

#[test]
fn limits_are_named_where_they_are_exceeded() {
    let mut text = with(&[(12, "maglev_slots = 11")]);
    for index in 0..9 {
        write!(text, "\n  [[service.backend]]\n  address = \"10.1.0.{index}\"").unwrap();
    }
    let error = Config::parse("lb.toml", &text).unwrap_err().to_string();
    let expected = "lb.toml:20: service.web.backend: 11 backends are too many for tables of 11 \
                    slots; write maglev_slots = 1103 in [balancer]";
    assert_eq!(error, expected);

    let mut text = with(&[]);
    for index in 0..BACKENDS_MAX - 2 {
        write!(
            text,
            "\n  [[service.backend]]\n  address = \"10.1.{}.{}\"",
            index >> 8,
            index & 255
        )
        .unwrap();
    }
    assert_eq!(Config::parse("lb.toml", &text).unwrap().services[0].backends.len(), BACKENDS_MAX);
    text.push_str("\n  [[service.backend]]\n  address = \"10.2.0.0\"");
    let error = Config::parse("lb.toml", &text).unwrap_err().to_string();
    assert!(error.contains("service.web.backend[1000]: too many; write at most 1000"), "{error}");
}

/// A hundred thousand services load, and the first one too many is named.
#[test]
fn a_hundred_thousand_services_load() {
    let (head, _) = SOUND.split_once("[[service]]").unwrap();
    let mut text = head.to_owned();
    for index in 0..=SERVICES_MAX {
        let [_, a, b, c] = (index as u32).to_be_bytes();
        let place = format!("name = \"s{index}\"\naddress = \"20.{a}.{b}.{c}\"\n");
        write!(text, "[[service]]\n{place}protocol = \"tcp\"\nports = \"80\"\n").unwrap();
        if index + 1 == SERVICES_MAX {
            assert_eq!(Config::parse("lb.toml", &text).unwrap().services.len(), SERVICES_MAX);
        }
    }
    let error = Config::parse("lb.toml", &text).unwrap_err().to_string();
    assert!(error.contains("service[131072]: too many; write at most 131072"), "{error}");
}

/// Operators' names, also of Kubernetes services with their ports.
#[test]
fn names_have_dots_and_colons_too() {
    let names = [(15, "name = \"eth1.100\""), (21, "name = \"prod.web_v2-1:https\"")];
    let config = Config::parse("lb.toml", &with(&names)).unwrap();
    assert_eq!(config.ports[0].name, "eth1.100");
    assert_eq!(config.services[0].name, "prod.web_v2-1:https");
    let wrong = with(&[names[0], names[1], (28, "weight = -1")]);
    let error = Config::parse("lb.toml", &wrong).unwrap_err().to_string();
    assert!(
        error.starts_with("lb.toml:28: service.prod.web_v2-1:https.backend[0].weight: -1"),
        "{error}"
    );
}

/// It may be omitted until a backend is IPv6.
#[test]
fn source_v6_is_needed_for_backends_of_ipv6_alone() {
    let without = with(&[(8, "")]);
    let error = Config::parse("lb.toml", &without).unwrap_err().to_string();
    let expected = "lb.toml:6: balancer.source_v6: missing, and service web has a backend of IPv6; \
                    write source_v6 = \"2001:db8::1\"";
    assert_eq!(error, expected);
    let config = without.replace("2001:db8::a", "10.0.0.2");
    assert_eq!(Config::parse("lb.toml", &config).unwrap().balancer.source_v6, None);
    assert!(printed(&config).contains("tunnels from 192.0.2.1, path MTU"), "{}", printed(&config));
}

/// Strings from any key appear in messages escaped, and cut to a readable length.
#[test]
fn strings_of_a_configuration_are_shown_escaped_and_cut() {
    let (escape, long) = ("\\u001B[2J\\u009B31m\\r", "x".repeat(1 << 20));
    let quoted = |key: &str, text: &str| format!("{key} = \"{text}\"");
    let mut texts = Vec::new();
    for text in [escape, "\u{9b}31m\u{202e}", long.as_str()] {
        let health = format!("health = {{ kind = \"https\", ca_file = \"{text}\" }}");
        texts.extend([
            with(&[(12, &quoted(&format!("\"{text}\""), "1"))]),
            with(&[(25, &format!("\"{text}\" = 7"))]),
            with(&[(25, &health)]),
            with(&[(12, &format!("{text} = ["))]),
            with(&[(9, &quoted("mtu", text))]),
            with(&[(10, &format!("decapsulate = [\"{text}\"]"))]),
            with(&[(11, &format!("tunnel_peers = [\"{text}\"]"))]),
            with(&[(1, &format!("[\"{text}\"]"))]),
        ]);
        let values = [(2, "deployment"), (4, "workers"), (7, "source_v4"), (8, "source_v6")];
        let more = [(15, "name"), (16, "device"), (17, "next_hop_mac"), (18, "side")];
        let services = [(21, "name"), (22, "address"), (23, "protocol"), (24, "ports")];
        let rest = [(25, "scheduler"), (27, "address"), (28, "weight")];
        for (line, key) in values.into_iter().chain(more).chain(services).chain(rest) {
            texts.push(with(&[(line, &quoted(key, text))]));
        }
        let device = quoted("device", text);
        let port = "name = \"b\"\nnext_hop_mac = \"02:00:00:00:00:01\"";
        texts.push(with(&[(16, &device), (18, &format!("[[port]]\n{port}\n{device}"))]));
    }
    for text in texts {
        let Err(error) = Config::parse("lb.toml", &text) else {
            // DPDK refuses a long device name.
            assert!(text.contains("device = \"xxx"));
            continue;
        };
        let error = error.to_string();
        assert!(error.len() < 2000, "{} bytes: {error:.300}", error.len());
        let visible = |it: char| !it.is_control() && it != '\u{202e}';
        assert!(error.chars().all(visible), "{error:?}");
    }
}
