//! `[metrics]`.

use super::ConfigError;
use super::document::Section;
use hotloop_balancer::spec::SERVICES_MAX;

const SERIES_OF_SERVICES: &str = "services_max";
const SERIES_OF_BACKENDS: &str = "backends_max";

/// The numbers of series that Prometheus gets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MetricsLimits {
    /// Maximum number of services with series of their own.
    pub services_max: usize,
    /// Maximum number of backends with series of their own.
    pub backends_max: usize,
}

impl Default for MetricsLimits {
    fn default() -> Self {
        Self { services_max: 10_000, backends_max: 2_000 }
    }
}

pub fn metrics(section: &Section<'_>) -> Result<MetricsLimits, ConfigError> {
    section.allow_only(&[SERIES_OF_SERVICES, SERIES_OF_BACKENDS])?;
    let MetricsLimits { services_max, backends_max } = MetricsLimits::default();
    let range = 0..=SERVICES_MAX;
    Ok(MetricsLimits {
        services_max: section.integer_or(SERIES_OF_SERVICES, range.clone(), services_max)?,
        backends_max: section.integer_or(SERIES_OF_BACKENDS, range, backends_max)?,
    })
}
