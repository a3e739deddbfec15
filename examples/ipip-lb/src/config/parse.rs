//! From a document to the types that hold what it says.

use super::balancer::balancer;
use super::document::{Origin, Section, Value};
use super::health::CaFiles;
use super::port::ports;
use super::service::services;
use super::words::DEPLOYMENTS;
use super::{CORES_MAX, Config, ConfigError, DeploymentKind, Engine, MTU_MIN_V6};
use toml::de::DeTable;

pub fn config(origin: Origin<'_>, table: &DeTable<'_>) -> Result<Config, ConfigError> {
    let root = Section::root(origin, table);
    root.allow_only(&["engine", "balancer", "port", "service"])?;
    let engine = root.section("engine")?.map_or(Ok(ENGINE_DEFAULT), |it| engine(&it))?;
    let Some(balancer_section) = root.section("balancer")? else {
        return Err(root.error("balancer", "missing; write [balancer] with source_v4 and the rest"));
    };
    let balancer = balancer(&balancer_section)?;
    let ports = ports(&root)?;
    let services = services(&root, &balancer, &mut CaFiles::of(origin.file))?;
    let over_v6 = services.iter().flat_map(|it| &it.backends).any(|it| it.address.is_ipv6());
    if over_v6 && balancer.mtu < MTU_MIN_V6 {
        let mtu = balancer_section.required("mtu", "mtu = 1500")?;
        let problem = format!(
            "{} is too small for the IPv6 backends; write {MTU_MIN_V6} or more",
            balancer.mtu
        );
        return Err(mtu.error(problem));
    }
    Ok(Config { engine, balancer, ports, services })
}

const ENGINE_DEFAULT: Engine =
    Engine { deployment: DeploymentKind::RunToCompletion, dispatchers: 1, workers: 2 };

fn engine(section: &Section<'_>) -> Result<Engine, ConfigError> {
    section.allow_only(&["deployment", "dispatchers", "workers"])?;
    let Engine { deployment, dispatchers, workers } = ENGINE_DEFAULT;
    let cores = 1..=CORES_MAX;
    Ok(Engine {
        deployment: section.choice_or("deployment", "a deployment", DEPLOYMENTS, deployment)?,
        dispatchers: section.integer_or("dispatchers", cores.clone(), dispatchers as u32)? as usize,
        workers: section.integer_or("workers", cores, workers as u32)? as usize,
    })
}

/// A name, which stands in reports and in the paths of keys.
pub fn name(value: &Value<'_>) -> Result<String, ConfigError> {
    let example = "1 to 63 letters, digits, '-' and '_'";
    value.parsed("a name", example, |text| {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        ((1..=63).contains(&text.len()) && text.bytes().all(sound)).then(|| text.to_owned())
    })
}
