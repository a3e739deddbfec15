//! `ipip-lb cluster`.

use super::etcd::Server;
use super::shared;
use hotloop_cluster::store::Key;
use hotloop_cluster::store::etcd::Operation;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A command's exit code, standard output and standard error.
fn cluster(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    let output = command.current_dir(folder).arg("cluster").args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn what_is_applied_is_shown_and_a_conflict_is_refused_with_the_difference() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let address = server.address().to_string();
    let lb = folder.path().join("lb.toml");
    let run = |args: &[&str]| cluster(folder.path(), &[args, &["--store", &address]].concat());
    let apply = |more: &[&str]| run(&[&["apply", "--config", "lb.toml"], more].concat());

    let (code, _, errors) = run(&["show"]);
    assert!(code == Some(1) && errors.contains("write one by `ipip-lb cluster apply`"), "{errors}");

    fs::write(&lb, shared(2)).unwrap();
    let (code, said, errors) = apply(&[]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(said.contains(" replaces revision 0: 2 services"), "{said}");
    let first = said.split_whitespace().nth(1).unwrap().to_owned();
    let (code, said, errors) = run(&["show"]);
    assert_eq!((code, said), (Some(0), shared(2)));
    assert!(errors.contains(&format!("revision {first}\n")), "{errors}");
    let (_, said, _) = apply(&[]);
    assert!(said.contains("nothing has changed"), "{said}");

    // Another operator adds a service, and this one changes the configuration that was read before.
    server.write(&shared(3));
    fs::write(&lb, shared(2).replace("mtu = 1500", "mtu = 1400")).unwrap();
    let (code, said, errors) = apply(&["--replaces", &first]);
    assert_eq!(code, Some(1), "{said}{errors}");
    assert!(said.contains("+name = \"web2\"") && !said.contains("web1"), "{said}");
    assert!(errors.contains("nothing was written") && errors.lines().count() == 1, "{errors}");
    assert_eq!(run(&["show"]).1, shared(3));
    // Without the history, only the revision in force can be printed.
    server.compact();
    let (code, said, _) = apply(&["--replaces", &first]);
    assert!(code == Some(1) && said.contains("is not kept"), "{said}");
    assert_eq!(apply(&[]).0, Some(0));
    assert!(run(&["show"]).1.contains("mtu = 1400"));
    // Damaged content can be replaced.
    let parts = Key::From("/ipip-lb/parts/", "/ipip-lb/parts0");
    server.client().transact(&[], &[Operation::Delete(parts)]).unwrap();
    let (code, _, errors) = run(&["show"]);
    assert!(code == Some(1) && errors.contains("its parts are not all there"), "{errors}");
    assert_eq!(apply(&[]).0, Some(0));
    assert!(run(&["show"]).1.contains("mtu = 1400"));
}

#[test]
fn what_is_wrong_is_not_written() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let address = server.address().to_string();
    let apply = |text: &str| {
        fs::write(folder.path().join("lb.toml"), text).unwrap();
        cluster(folder.path(), &["apply", "--config", "lb.toml", "--store", &address])
    };
    let long = format!("{}#{}\n", shared(1), "x".repeat(1_500_000));
    for (text, expected) in [
        (
            shared(1).replace("10.0.0.1", "10.0.0.300"),
            "lb.toml:10: service.web0.backend[0].address",
        ),
        (format!("[engine]\n{}", shared(1)), "lb.toml:1: engine: belongs to one node"),
        (long, "service-web0: 1500"),
    ] {
        let (code, said, errors) = apply(&text);
        assert!(code == Some(2) && said.is_empty() && errors.contains(expected), "{errors}");
    }
    let (code, _, errors) = cluster(folder.path(), &["show", "--store", &address]);
    assert!(code == Some(1) && errors.contains("has no configuration"), "{errors}");
}

#[test]
fn a_node_s_file_names_the_store_and_is_checked_with_it() {
    let server = match Server::start() {
        Ok(server) => server,
        Err(why) => return println!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let node = format!(
        "[cluster]\nnode = \"a\"\nstore = \"{}\"\n[balancer]\nsource_v4 = \"192.0.2.1\"\n\
         decapsulate = []\n[[port]]\nname = \"up\"\ndevice = \"net_null0\"\n\
         next_hop_mac = \"02:00:00:00:00:01\"\n",
        server.address()
    );
    fs::write(folder.path().join("node.toml"), &node).unwrap();
    let apply = |text: &str| {
        fs::write(folder.path().join("lb.toml"), text).unwrap();
        cluster(folder.path(), &["apply", "--config", "lb.toml", "--node", "node.toml"])
    };
    let v6 = shared(1).replace("10.0.0.1", "2001:db8::1");
    let (code, _, errors) = apply(&v6);
    assert!(code == Some(2) && errors.contains("source_v6: missing"), "{errors}");
    let (code, _, errors) = apply(&shared(1));
    assert_eq!(code, Some(0), "{errors}");
    let (code, said, _) = cluster(folder.path(), &["show", "--node", "node.toml"]);
    assert_eq!((code, said), (Some(0), shared(1)));
}

#[test]
fn arguments_say_which_store() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("lb.toml"), shared(1)).unwrap();
    for (args, expected) in [
        (&["show"][..], "<--store <ADDRESS>|--node <FILE>>"),
        (&["show", "--store", "http://a"], "write etcd://HOST:PORT"),
        (&["show", "--node", "lb.toml"], "lb.toml: --node: has no cluster.store"),
        (&["show", "--store", "etcd://127.0.0.1:1"], "start etcd, or name its members"),
        (&["apply", "--config", "no.toml", "--store", "etcd://a:1"], "no.toml: --config"),
    ] {
        let (code, said, errors) = cluster(folder.path(), args);
        assert!(code == Some(2) && said.is_empty() && errors.contains(expected), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}
