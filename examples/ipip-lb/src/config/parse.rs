//! Converting a document into the configuration's types.

use super::announce::announce;
use super::balancer::{balancer, nested_backends};
use super::cluster::{ClusterSection, cluster};
use super::document::{Section, Value};
use super::health::CaFiles;
use super::limits::limits;
use super::metrics::{MetricsLimits, metrics};
use super::port::ports;
use super::service::services;
use super::store::operator_file;
use super::via::{probe_sources, quorum};
use super::words::DEPLOYMENTS;
use super::{CORES_MAX, Config, ConfigError, DeploymentKind, Engine, MTU_MIN_V6};
use hotloop::engine::Idle;
use hotloop::packet::{ipv4, ipv6};
use hotloop_balancer::spec::{Backend, Balancer, Limits, ServiceSpec};
use std::net::IpAddr;

/// The keys of a whole configuration.
const KEYS: [&str; 9] =
    ["engine", "balancer", "health", "limits", "metrics", "announce", "cluster", "port", "service"];

/// The configuration in a document; other files are relative to `file`.
pub fn config(file: &str, root: &Section<'_>) -> Result<Config, ConfigError> {
    root.allow_only(&KEYS)?;
    let engine = root.section("engine")?.map_or(Ok(ENGINE_DEFAULT), |section| engine(&section))?;
    let Some(balancer_section) = root.section("balancer")? else {
        return Err(root.missing("balancer", "[balancer] with source_v4 and the rest"));
    };
    let mut balancer = balancer(&balancer_section)?;
    if let Some(section) = root.section("health")? {
        balancer.probe_sources = probe_sources(&section, &balancer)?;
    }
    let limits =
        root.section("limits")?.map_or(Ok(Limits::default()), |section| limits(&section))?;
    let metrics = root
        .section("metrics")?
        .map_or(Ok(MetricsLimits::default()), |section| metrics(&section))?;
    let ports = ports(root)?;
    let mut files = CaFiles::of(file);
    let nested_backends = nested_backends(&balancer_section)?;
    let (services, health) = services(root, &balancer, &nested_backends, &mut files)?;
    check_balancer(root, &balancer_section, &balancer, &services)?;
    let announce = root.section("announce")?.map(|section| announce(&section)).transpose()?;
    let of_cluster = match root.section("cluster")? {
        Some(section) => cluster(&section, &mut files)?,
        None => ClusterSection::default(),
    };
    let operator_file =
        operator_file(&balancer_section, of_cluster.node(), of_cluster.store.as_ref())?;
    let ClusterSection { cluster, store } = of_cluster;
    let quorum = match root.section("health")? {
        Some(section) => quorum(&section, cluster.as_ref())?,
        None => None,
    };
    Ok(Config {
        engine,
        balancer,
        limits,
        metrics,
        ports,
        services,
        health,
        nested_backends,
        announce,
        cluster,
        store,
        operator_file,
        quorum,
    })
}

/// Checks that the balancer's addresses and MTU suit the services: no address for replies to probes
/// is a service's, there is a source of IPv6 if a backend needs it, and IPv6 fits into the MTU.
fn check_balancer(
    root: &Section<'_>,
    section: &Section<'_>,
    balancer: &Balancer,
    services: &[ServiceSpec],
) -> Result<(), ConfigError> {
    let is_vip =
        |source: &&IpAddr| services.iter().any(|service| service.address.contains(**source));
    if let Some(source) = balancer.probe_sources.iter().find(is_vip) {
        let problem = format!("{source} is a service's: replies would be balanced; write another");
        return Err(root.error("health.probe_source", problem));
    }
    if balancer.source_v6.is_none()
        && let Some(service) = services.iter().find(|service| service.backends.iter().any(is_v6))
    {
        let name = &service.name;
        let problem = format!(
            "missing, and service {name} has a backend of IPv6; write source_v6 = \"2001:db8::1\""
        );
        return Err(section.error("source_v6", problem));
    }
    let least = services.iter().map(least_mtu).max().unwrap_or(0);
    if balancer.mtu < least {
        let problem = format!(
            "{} is too small for IPv6 as it is used here; write {least} or more",
            balancer.mtu
        );
        return Err(section.error_at("mtu", problem));
    }
    Ok(())
}

const fn is_v6(backend: &Backend) -> bool {
    backend.address.is_ipv6()
}

/// The least MTU of the path to a service's backends: every IPv6 packet of 1,280 bytes must pass, as
/// the tunnel's outer packet if a backend is IPv6, and inside the tunnel if the service is (RFC
/// 2473, section 7.1).
fn least_mtu(service: &ServiceSpec) -> u16 {
    let least = |backend: &Backend| match (service.address.network(), backend.address) {
        (IpAddr::V4(_), IpAddr::V4(_)) => 0,
        (IpAddr::V4(_), IpAddr::V6(_)) => MTU_MIN_V6,
        (IpAddr::V6(_), IpAddr::V4(_)) => MTU_MIN_V6 + ipv4::HEADER_BYTES as u16,
        (IpAddr::V6(_), IpAddr::V6(_)) => MTU_MIN_V6 + ipv6::HEADER_BYTES as u16,
    };
    service.backends.iter().map(least).max().unwrap_or(0)
}

const ENGINE_DEFAULT: Engine = Engine {
    deployment: DeploymentKind::RunToCompletion,
    dispatchers: 1,
    workers: 2,
    idle: Idle::Spin,
    require_hugepages: false,
    worker_stall_ms_max: hotloop_ops::WORKER_STALL_MAX.as_millis() as u32,
};

/// Maximum of `engine.worker_stall_ms_max`.
const WORKER_STALL_MS_MAX: u32 = 600_000;

fn engine(section: &Section<'_>) -> Result<Engine, ConfigError> {
    section.allow_only(&[
        "deployment",
        "dispatchers",
        "workers",
        "idle",
        "require_hugepages",
        "worker_stall_ms_max",
    ])?;
    let default = ENGINE_DEFAULT;
    let what = "a deployment";
    let cores = |key, default| section.integer_or(key, 1..=CORES_MAX as usize, default);
    Ok(Engine {
        deployment: section.choice_or("deployment", what, DEPLOYMENTS, default.deployment)?,
        dispatchers: cores("dispatchers", default.dispatchers)?,
        workers: cores("workers", default.workers)?,
        idle: section.choice_or("idle", "an idle mode", &Idle::NAMES, default.idle)?,
        require_hugepages: section.boolean_or("require_hugepages", default.require_hugepages)?,
        worker_stall_ms_max: section.integer_or(
            "worker_stall_ms_max",
            0..=WORKER_STALL_MS_MAX,
            default.worker_stall_ms_max,
        )?,
    })
}

/// Parses a name, which appears in reports and in the paths of keys.
pub fn name(value: &Value<'_>) -> Result<String, ConfigError> {
    let example = "1 to 63 letters, digits, '-', '_', '.' and ':'";
    value.parsed("a name", example, |text| {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        ((1..=63).contains(&text.len()) && text.bytes().all(sound)).then(|| text.to_owned())
    })
}
