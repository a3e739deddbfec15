//! `[service.health]`.

use super::ConfigError;
use super::document::{Section, Value};
use super::via::via;
use super::words::{PROBES, ProbeKind};
use hotloop::packet::excerpt::excerpt;
use hotloop::packet::prefix::Prefix;
use hotloop_balancer::spec::{Balancer, Ports};
use hotloop_files::file::read_certificates;
use hotloop_health::settings::{Health, HttpProbe, Probe, Trust};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Maximum interval of probes, in milliseconds: an hour.
const INTERVAL_MS_MAX: u32 = 3_600_000;

/// Minimum interval of probes, and duration of one, in milliseconds.
const INTERVAL_MS_MIN: u32 = 10;

const INTERVAL_MS_DEFAULT: u32 = 2000;

const TIMEOUT_MS_DEFAULT: u32 = 1000;

/// Maximum number of consecutive probes for a change of state.
const IN_A_ROW_MAX: u32 = 100;

/// Maximum length of a request's path, in bytes.
const PATH_BYTES_MAX: usize = 1024;

const KEYS: &[&str] = &[
    "kind",
    "port",
    "interval_ms",
    "timeout_ms",
    "rise",
    "fall",
    "path",
    "expect_status",
    "ca_file",
    "insecure",
    "via",
];

/// Reads the health check of a service with this address and these ports.
pub fn health(
    section: &Section<'_>,
    address: Prefix,
    ports: Ports,
    balancer: &Balancer,
    ca_files: &mut CaFiles,
) -> Result<Health, ConfigError> {
    section.allow_only(KEYS)?;
    let kind = section.required("kind", "\"tcp\"")?.choice("a kind of probe", PROBES)?;
    let port = port(section, kind, ports)?;
    let allowed = INTERVAL_MS_MIN..=INTERVAL_MS_MAX;
    let interval_ms = section.integer_or("interval_ms", allowed, INTERVAL_MS_DEFAULT)?;
    let timeout_ms = timeout_ms(section, interval_ms)?;
    let in_a_row = |key, default| section.integer_or(key, 1..=IN_A_ROW_MAX, default);
    let (rise, fall) = (in_a_row("rise", 2)?, in_a_row("fall", 3)?);
    let is_http = matches!(kind, ProbeKind::Http | ProbeKind::Https);
    for (keys, belong, kinds) in [
        (["path", "expect_status"], is_http, "http and https"),
        (["ca_file", "insecure"], kind == ProbeKind::Https, "https"),
    ] {
        let foreign = keys.into_iter().find_map(|key| section.optional(key));
        if let Some(value) = foreign.filter(|_| !belong) {
            return Err(value.error(format!("only probes of kind {kinds} have one; leave it out")));
        }
    }
    let probe = match kind {
        ProbeKind::Tcp => Probe::Tcp,
        ProbeKind::Http => Probe::Http(http(section)?),
        ProbeKind::Https => Probe::Https(http(section)?, trust(section, ca_files)?),
        ProbeKind::Icmp => Probe::Icmp,
        ProbeKind::Udp => Probe::Udp,
    };
    let via = via(section, &probe, address, balancer)?;
    Ok(Health { probe, port, interval_ms, timeout_ms, rise, fall, via })
}

/// The configured port, or else the service's only one.
fn port(section: &Section<'_>, kind: ProbeKind, ports: Ports) -> Result<u16, ConfigError> {
    match (section.optional("port"), kind, ports) {
        (None, ProbeKind::Icmp, _) => Ok(0),
        (Some(value), ProbeKind::Icmp, _) => {
            Err(value.error("an echo request has no port; leave it out"))
        }
        (Some(value), ..) => value.integer(1..=u16::MAX),
        (None, _, Ports::Range { first, last }) if first == last => Ok(first),
        (None, ..) => {
            let problem = "missing, and the service has more than one; write port = 80";
            Err(section.error("port", problem))
        }
    }
}

/// A probe ends before the next one of the same backend begins.
fn timeout_ms(section: &Section<'_>, interval_ms: u32) -> Result<u32, ConfigError> {
    let Some(value) = section.optional("timeout_ms") else {
        return Ok(interval_ms.min(TIMEOUT_MS_DEFAULT));
    };
    let timeout_ms = value.integer(INTERVAL_MS_MIN..=INTERVAL_MS_MAX)?;
    if timeout_ms > interval_ms {
        let problem = format!("longer than interval_ms; write {interval_ms} or less");
        return Err(value.error(problem));
    }
    Ok(timeout_ms)
}

fn http(section: &Section<'_>) -> Result<HttpProbe, ConfigError> {
    let sound = |text: &str| {
        let graphic = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        text.starts_with('/') && graphic && text.len() <= PATH_BYTES_MAX
    };
    let example = "\"/healthz\": a slash and ASCII characters without spaces";
    let path = section.read("path", |value| {
        value.parsed("a path", example, |text| sound(text).then(|| text.to_owned()))
    })?;
    Ok(HttpProbe {
        path: path.unwrap_or_else(|| "/".to_owned()),
        expect_status: section.integer_or("expect_status", 200..=599, 200)?,
        user_agent: "ipip-lb",
    })
}

fn trust(section: &Section<'_>, ca_files: &mut CaFiles) -> Result<Trust, ConfigError> {
    let insecure = section.boolean_or("insecure", false)?;
    match (section.optional("ca_file"), insecure) {
        (Some(value), false) => Ok(Trust::CaFile(ca_files.checked(&value)?)),
        (None, true) => Ok(Trust::Insecure),
        (Some(value), true) => {
            Err(value.error("insecure = true trusts anybody; leave out one of the two"))
        }
        (None, false) => {
            Err(section.missing("ca_file", "ca_file = \"ca.pem\", or insecure = true"))
        }
    }
}

/// The certificate files of a configuration, each examined once.
#[derive(Debug)]
pub struct CaFiles {
    /// The base of relative names: the configuration's folder.
    folder: PathBuf,
    sound: HashSet<PathBuf>,
}

impl CaFiles {
    /// The certificate files of the configuration in `file`.
    pub fn of(file: &str) -> Self {
        let folder = Path::new(file).parent().unwrap_or(Path::new(""));
        Self { folder: folder.to_owned(), sound: HashSet::new() }
    }

    /// The file that `value` names.
    pub fn path(&self, value: &Value<'_>) -> Result<PathBuf, ConfigError> {
        let example = "\"ca.pem\", a file in the configuration's folder, or a whole path";
        value.parsed("a file", example, |text| (!text.is_empty()).then(|| self.folder.join(text)))
    }

    /// The file that `value` names, which must exist and contain a certificate.
    pub fn checked(&mut self, value: &Value<'_>) -> Result<PathBuf, ConfigError> {
        let path = self.path(value)?;
        if !self.sound.contains(&path) {
            let wrong = |what: String| {
                let path = excerpt(&path.to_string_lossy());
                value.error(format!("{path}: {what}; name a PEM file of certificates"))
            };
            let text = read_certificates(&path).map_err(|error| wrong(error.to_string()))?;
            if !text.windows(CERTIFICATE.len()).any(|window| window == CERTIFICATE) {
                return Err(wrong("has no certificate in it".to_owned()));
            }
            self.sound.insert(path.clone());
        }
        Ok(path)
    }
}

/// The beginning of a certificate in a PEM file (RFC 7468, section 5.1).
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";
