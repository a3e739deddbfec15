//! A Prometheus for a test, if the machine has one.

use crate::free_address;
use hotloop_test_tools::tool;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

/// Time limit for an answer over HTTP.
const PATIENCE: Duration = Duration::from_secs(60);

/// The body of `GET path` at an address, which must answer with 200.
///
/// # Errors
/// The error, or the answer that came instead.
pub fn get(address: SocketAddr, path: &str) -> Result<String, String> {
    let asked = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // HTTP/1.0 answers are not chunked.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    };
    let answer = asked().map_err(|error: std::io::Error| format!("{address}{path}: {error}"))?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(answer),
    }
}

/// A Prometheus that scrapes one program every second, and ends with the test.
#[derive(Debug)]
pub struct Prometheus {
    address: SocketAddr,
    child: Child,
    /// The configuration and the data.
    _folder: tempfile::TempDir,
}

/// A sample of the answer to a query.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The labels, including the metric's name.
    pub labels: Value,
    /// The value.
    pub value: f64,
}

impl Prometheus {
    /// Starts Prometheus, which scrapes the metrics at `target`.
    ///
    /// # Errors
    /// The reason why that is impossible: Prometheus is not installed.
    ///
    /// # Panics
    /// If Prometheus is installed but does not start.
    pub fn start(target: SocketAddr) -> Result<Self, String> {
        let mut prometheus = tool("prometheus")?;
        tool("promtool")?;
        let folder = tempfile::tempdir().expect("there is room for files");
        let config = folder.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
             scrape_configs: [{{job_name: hotloop, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        std::fs::write(&config, text).expect("there is room for files");
        let address = free_address();
        let child = prometheus
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut prometheus = Self { address, child, _folder: folder };
        crate::wait_until("Prometheus is ready", || {
            assert_eq!(prometheus.child.try_wait().expect("it is a child"), None, "it has ended");
            get(address, "/-/ready").is_ok()
        });
        Ok(prometheus)
    }

    /// The samples that an expression currently returns.
    ///
    /// # Panics
    /// If Prometheus refuses the expression, or if the result is not a vector.
    #[must_use]
    pub fn query(&self, expression: &str) -> Vec<Sample> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = get(self.address, &format!("/api/v1/query?query={encoded}"));
        let answer = answer.unwrap_or_else(|problem| panic!("{expression}: {problem}"));
        let answer: Value = serde_json::from_str(&answer).expect("it answers in JSON");
        let samples = answer["data"]["result"].as_array().expect("a vector").iter();
        let samples = samples.map(|sample| {
            let value = sample["value"][1].as_str().and_then(|value| value.parse().ok());
            Sample { labels: sample["metric"].clone(), value: value.expect("a number") }
        });
        samples.collect()
    }

    /// The value of an expression with one result; `None` if there is none.
    ///
    /// # Panics
    /// If there are several results.
    #[must_use]
    pub fn value(&self, expression: &str) -> Option<f64> {
        let samples = self.query(expression);
        assert!(samples.len() <= 1, "{expression}: {samples:?}");
        samples.first().map(|sample| sample.value)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// promtool's complaints about metrics in Prometheus's text format: empty if they are fine.
///
/// # Errors
/// promtool is not installed.
///
/// # Panics
/// If promtool can't be run.
pub fn promtool(metrics: &str) -> Result<String, String> {
    let mut promtool = tool("promtool")?;
    promtool.args(["check", "metrics"]).stdin(Stdio::piped());
    let child = promtool.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("promtool starts");
    let mut input = child.stdin.take().expect("it is a pipe");
    input.write_all(metrics.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it is a child");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Ok(if output.status.success() { said } else { format!("{}: {said}", output.status) })
}
