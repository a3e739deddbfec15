//! The output of `ctl`.

use super::program::{Program, TCP_COUNT, UDP_COUNT, client, config};

#[test]
fn ctl_tells_people_and_programs_how_things_are() {
    let program = Program::start();
    let status = program.json(&["status"]);
    assert_eq!(status["engine"]["received"], 64);
    assert_eq!(status["engine"]["idle"], "adaptive");
    assert_eq!((&status["services"], &status["backends"]), (&3.into(), &4.into()));
    assert_eq!((&status["down"], &status["reloads"]), (&0.into(), &0.into()));
    let text = program.text(&["status"]);
    for part in ["pipeline", "lb.toml: 3 services with 4 backends", "52 remembered", "reloads: 0"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    let counters = program.json(&["counters"]);
    assert_eq!(counters["dropped"]["no_service"], 1);
    assert_eq!(counters["dropped"]["punt"], 1);
    let text = program.text(&["counters"]);
    assert!(text.contains("no_service") && text.contains("group 0 core 0"), "{text}");

    let services = program.json(&["services"]);
    let names: Vec<_> = services.as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["web", "dns", "turns"]);
    assert_eq!(services[0]["connections"], TCP_COUNT);
    assert_eq!(
        (&services[1]["address"], &services[1]["ports"]),
        (&"203.0.113.0/24".into(), &"53".into())
    );
    let rows = program.rows(&["services"]);
    assert_eq!((rows.len(), rows[1][0].as_str(), rows[3][4].as_str()), (4, "web", "round-robin"));

    let backends = program.json(&["backends"]);
    let sum: u64 = (0..2).map(|row| backends[row]["connections"].as_u64().unwrap()).sum();
    let packets: u64 = (0..2).map(|row| backends[row]["packets"].as_u64().unwrap()).sum();
    assert_eq!((sum, packets), (TCP_COUNT, TCP_COUNT + 10));
    assert_eq!(program.backend("web", "10.0.0.2"), ("up".to_owned(), 2));
    let rows = program.rows(&["backends"]);
    assert_eq!(
        (rows.len(), &rows[2][..4]),
        (5, &["web", "10.0.0.2", "2", "up"].map(str::to_owned)[..])
    );
    program.end("-INT");
}

#[test]
fn ctl_lists_connections_by_filter() {
    let program = Program::start();
    for (filter, count) in [
        ("", TCP_COUNT + UDP_COUNT),
        ("protocol=tcp", TCP_COUNT),
        ("protocol=17", UDP_COUNT),
        ("service=dns", UDP_COUNT),
        ("client=198.51.100.5", 2),
        ("client=198.51.100.0/29, protocol=tcp", 7),
        ("vip=203.0.113.7", UDP_COUNT),
        ("port=80", TCP_COUNT),
        ("port=81", 0),
        ("service=web,service=dns", 0),
    ] {
        assert_eq!(program.matching(filter), count, "{filter}");
    }
    let of = |address: &str| program.matching(&format!("backend={address},service=web"));
    assert_eq!(of("10.0.0.1") + of("10.0.0.2"), TCP_COUNT);
    assert!(of("10.0.0.1") > 0 && of("10.0.0.2") > of("10.0.0.1"));
    // Only the requested number is listed, but all are counted.
    let answer = program.json(&["connections", "--limit", "3"]);
    assert_eq!(answer["connections"].as_array().unwrap().len(), 3);
    assert_eq!(answer["matching"], TCP_COUNT + UDP_COUNT);
    let row = program.json(&["connections", "--filter", "client=198.51.100.3,protocol=tcp"]);
    let row = &row["connections"][0];
    assert_eq!(
        (&row["client"], &row["vip"]),
        (&"198.51.100.3:4000".into(), &"203.0.113.10:80".into())
    );
    assert_eq!((&row["state"], &row["service"]), (&"established".into(), &"web".into()));
    let text = program.text(&["connections", "--filter", "client=198.51.100.33"]);
    assert!(text.contains("opening") && text.contains("1 of 1 connections"), "{text}");
    program.end("-TERM");
}

#[test]
fn ctl_looks_up_where_a_flow_goes_and_why() {
    let program = Program::start();
    let lookup = |protocol: &str, client: &str, vip: &str| {
        let answer = program.json(&["lookup", protocol, client, vip]);
        let text = |key: &str| answer[key].as_str().unwrap_or("none").to_owned();
        (text("service"), text("backend"), text("why"))
    };
    let known = lookup("tcp", &client(3), "203.0.113.10:80");
    assert_eq!((known.0.as_str(), known.2.as_str()), ("web", "connection, established"));
    let listed = program.json(&["connections", "--filter", "client=198.51.100.3,protocol=tcp"]);
    assert_eq!(known.1, listed["connections"][0]["backend"]);
    assert_eq!(lookup("tcp", &client(30), "203.0.113.10:80").2, "connection, opening");

    let new = lookup("udp", "198.51.100.200:1", "203.0.113.99:53");
    assert_eq!((new.0.as_str(), new.1.as_str()), ("dns", "10.0.0.1"));
    assert!(new.2.starts_with("new"), "{new:?}");
    assert_eq!(lookup("tcp", "198.51.100.200:1", "203.0.113.11:80").1, "none");
    assert!(lookup("tcp", &client(3), "203.0.113.10:81").2.contains("no_service"));
    assert!(lookup("tcp", &client(3), "192.0.2.77:80").2.contains("punt"));
    let text = program.text(&["lookup", "tcp", &client(3), "203.0.113.10:80"]);
    for part in ["worker", "203.0.113.10", "tcp 80", "connection, established"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    program.end("-INT");
}

#[test]
fn what_ctl_cannot_do_is_reported_on_one_line_with_what_to_do_instead() {
    let program = Program::start();
    for (args, part) in [
        (&["drain", "10.9.9.9"][..], "ctl backends lists them"),
        (&["drain", "web"], "\"web\" is not a backend's address"),
        (&["drain", "10.0.0.3", "--service", "web"], "10.0.0.3"),
        (&["drain", "10.0.0.1", "--service", "nowhere"], "ctl services lists them"),
        (&["weight", "10.0.0.1", "65536"], "0 to 65535"),
        (&["withdraw"], "no section [announce]"),
        (&["announce"], "no section [announce]"),
        (&["leave"], "no section [announce]. Have whatever routes them here"),
        (&["connections", "--filter", "port"], "client=PREFIX"),
        (&["connections", "--filter", "colour=red"], "client=PREFIX"),
        (&["connections", "--filter", "client=999.1.1.1"], "client=PREFIX"),
        (&["connections", "--filter", "backend=10.9.9.9"], "ctl backends lists them"),
        (&["connections", "--filter", "protocol=smtp"], "tcp, udp"),
        (&["connections", "--limit", "0"], "1 to 50000"),
        (&["lookup", "tcp", "198.51.100.7", "203.0.113.10:80"], "198.51.100.7:4000"),
        (&["lookup", "smtp", &client(1), "203.0.113.10:80"], "tcp, udp"),
        (&["lookup", "tcp", &client(1), "[2001:db8::1]:80"], "two IP versions"),
    ] {
        let refusal = program.refusal(args, 1);
        assert!(refusal.contains(part), "{args:?}: {refusal}");
    }
    for args in
        [&[][..], &["restart"], &["drain"], &["weight", "10.0.0.1"], &["weight", "10.0.0.1", "x"]]
    {
        program.refusal(args, 2);
    }
    program.end("-INT");
}

/// The notes of `check` are also logged at startup.
#[test]
fn what_may_surprise_is_said_at_startup() {
    let surprising =
        config().replace("mtu = 1500", "mtu = 1500\n    tunnel_peers = [\"0.0.0.0/0\"]");
    let surprising = surprising.replace("203.0.113.11", "192.0.2.1");
    let program = Program::start_with(&surprising);
    for note in
        ["tunnel_peers has 0.0.0.0/0: ", "service turns: its address holds the balancer's own"]
    {
        program.wait_until(note, |it| it.has_said(note));
    }
    program.end("-INT");
}

#[test]
fn status_says_which_pages_and_node_each_table_and_mempool_got() {
    let program = Program::start();
    let status = program.json(&["status"]);
    let tables = status["tables"].as_array().unwrap();
    for worker in 0..2 {
        for table in ["connections", "clients"] {
            let is_it = |row: &&serde_json::Value| row["worker"] == worker && row["table"] == table;
            let row = tables.iter().find(is_it).unwrap_or_else(|| panic!("{table}: {status}"));
            let got = row["got"].as_str().unwrap();
            assert!(got.contains(" KiB on ") && got.contains("pages"), "{got}");
        }
    }
    assert_eq!(tables.len(), 4);
    let text = program.text(&["status"]);
    assert!(text.contains("memory: connections of worker 1: "), "{text}");

    // One less than the power of two above the configured number.
    let mempools = status["engine"]["mempools"].as_array().unwrap();
    let asked_for = mempools.iter().find(|row| row["mbufs"] == 32_767);
    let asked_for = asked_for.unwrap_or_else(|| panic!("{status}"));
    assert_eq!(asked_for["page_bytes"], 4096);
    let line = format!("memory: mempool of 32767 mbufs: {}\n", asked_for["got"].as_str().unwrap());
    assert!(text.contains(&line) && line.contains(" KiB on 4 KiB pages"), "{text}");
    program.end("-INT");
}
