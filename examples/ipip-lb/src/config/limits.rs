//! `[limits]`.

use super::ConfigError;
use super::document::Section;
use hotloop_balancer::limits::LIMIT_MAX;
use hotloop_balancer::spec::Limits;

const SERVICE_MAX: &str = "service_new_connections_per_second_max";
const SOURCE_MAX: &str = "source_new_connections_per_second_max";
const PREFIX_V4: &str = "source_prefix_v4";
const PREFIX_V6: &str = "source_prefix_v6";

pub fn limits(section: &Section<'_>) -> Result<Limits, ConfigError> {
    section.allow_only(&[SERVICE_MAX, SOURCE_MAX, PREFIX_V4, PREFIX_V6])?;
    let default = Limits::default();
    let limits = Limits {
        service_max: section.integer(SERVICE_MAX, 1..=LIMIT_MAX)?,
        source_max: section.integer(SOURCE_MAX, 1..=LIMIT_MAX)?,
        source_prefix_v4: section.integer_or(PREFIX_V4, 1..=32, default.source_prefix_v4)?,
        source_prefix_v6: section.integer_or(PREFIX_V6, 1..=128, default.source_prefix_v6)?,
    };
    let prefix = [PREFIX_V4, PREFIX_V6].into_iter().find(|key| section.optional(key).is_some());
    if limits.source_max.is_none()
        && let Some(key) = prefix
    {
        let problem = format!("there is no limit for prefixes; write {SOURCE_MAX} too");
        return Err(section.error(key, problem));
    }
    Ok(limits)
}
