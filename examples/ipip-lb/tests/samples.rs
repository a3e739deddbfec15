//! The configurations of the book and of README are accepted.

use crate::sync::authority::Authority;
use crate::web_config::WEB;
use ipip_lb::config::Config;
use std::fs;
use toml::{Table, Value};

const PAGES: [(&str, &str); 4] = [
    ("README.md", include_str!("../README.md")),
    ("docs/announcing.md", include_str!("../../../docs/announcing.md")),
    ("docs/cluster.md", include_str!("../../../docs/cluster.md")),
    ("docs/kernel.md", include_str!("../../../docs/kernel.md")),
];

/// The samples of a page, without the indentation of a list.
fn samples(page: &str) -> Vec<String> {
    let after = |begin: &str| begin.split("```").next().unwrap_or_default().to_owned();
    page.split("```toml\n").skip(1).map(after).collect()
}

/// A whole configuration with the sample's sections in the place of others. Keys without a section are
/// of a port.
fn whole(sample: &str) -> String {
    let backend = "backend = [{ address = \"10.0.0.1\" }]\n";
    let mut whole: Table = format!("{WEB}{backend}").parse().unwrap();
    for (key, value) in sample.parse::<Table>().unwrap() {
        match (whole.get_mut(&key), value) {
            (Some(Value::Table(section)), Value::Table(keys)) => section.extend(keys),
            (None, value) if !matches!(key.as_str(), "engine" | "announce" | "cluster") => {
                let port = whole["port"][0].as_table_mut().unwrap();
                port.insert("kernel_interface".into(), "edge0".into());
                port.insert(key, value);
            }
            (_, value) => drop(whole.insert(key, value)),
        }
    }
    whole.to_string()
}

#[test]
fn every_sample_of_a_configuration_is_accepted() {
    // The files that samples name are next to the configuration.
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("all nodes"));
    authority.signed(folder.path(), "lb-1", "lb-1", |_| ());
    authority.signed(folder.path(), "lb-1-etcd", "lb-1", |_| ());
    for name in ["ca.pem", "etcd-ca.pem"] {
        fs::write(folder.path().join(name), &authority.pem).unwrap();
    }
    let file = folder.path().join("lb.toml");
    for (name, page) in PAGES {
        let samples = samples(page);
        assert!(!samples.is_empty(), "{name}");
        for sample in samples {
            let parsed = Config::parse(file.to_str().unwrap(), &whole(&sample));
            parsed.unwrap_or_else(|error| panic!("{name}: {error}\n{sample}"));
        }
    }
}
