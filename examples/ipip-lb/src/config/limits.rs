//! `[limits]`.

use super::ConfigError;
use super::document::Section;
use hotloop_balancer::limits::LIMIT_MAX;
use hotloop_balancer::spec::Limits;

const SERVICE_MAX: &str = "service_new_connections_per_second_max";
const SOURCE_MAX: &str = "source_new_connections_per_second_max";

pub fn limits(section: &Section<'_>) -> Result<Limits, ConfigError> {
    section.allow_only(&[SERVICE_MAX, SOURCE_MAX, "source_prefix_v4", "source_prefix_v6"])?;
    let prefix = |key, most, default: u8| section.integer_or(key, 1..=most, default.into());
    let default = Limits::default();
    let limits = Limits {
        service_max: per_second(section, SERVICE_MAX)?,
        source_max: per_second(section, SOURCE_MAX)?,
        source_prefix_v4: prefix("source_prefix_v4", 32, default.source_prefix_v4)? as u8,
        source_prefix_v6: prefix("source_prefix_v6", 128, default.source_prefix_v6)? as u8,
    };
    if limits.source_max.is_none()
        && let Some(key) = ["source_prefix_v4", "source_prefix_v6"]
            .into_iter()
            .find(|key| section.optional(key).is_some())
    {
        let problem = format!("there is no limit for prefixes; write {SOURCE_MAX} too");
        return Err(section.error(key, problem));
    }
    Ok(limits)
}

/// The rate at `key`, per second, if the section has it.
pub fn per_second(section: &Section<'_>, key: &str) -> Result<Option<u32>, ConfigError> {
    section.optional(key).map(|value| value.integer(1..=LIMIT_MAX)).transpose()
}
