//! `[announce]`.

use super::document::{Section, Value};
use super::words::ANNOUNCED;
use super::{Announce, ConfigError};
use hotloop_kernel::VIP_HOLD_MAX;

/// The default interface that VIPs are routed to.
const INTERFACE: &str = "ipip-lb";

/// Default time that a balancer continues after it has withdrawn its VIPs, in milliseconds: several
/// times the delay until a daemon has informed its neighbours.
const LINGER_MS: u32 = 1_000;

/// Maximum such time: less than the stop timeout of the systemd unit in `packaging`.
const LINGER_MS_MAX: u32 = 20_000;

/// Default time that a withdrawn VIP must be ready before it is announced again, in seconds.
const HOLD_S: u32 = 1;

/// Maximum length of an interface's name, in bytes (`IFNAMSIZ`, netdevice(7)).
const INTERFACE_BYTES_MAX: usize = 15;

pub fn announce(section: &Section<'_>) -> Result<Announce, ConfigError> {
    section.allow_only(&["vips", "interface", "linger_ms", "hold_s"])?;
    let vips = section.required("vips", "\"ready\"")?;
    let vips = vips.choice("which VIPs are announced", ANNOUNCED)?;
    let interface = section.read("interface", interface)?.unwrap_or_else(|| INTERFACE.to_owned());
    let linger_ms = section.integer_or("linger_ms", 0..=LINGER_MS_MAX, LINGER_MS)?;
    let hold_s = section.integer_or("hold_s", 0..=VIP_HOLD_MAX.as_secs() as u32, HOLD_S)?;
    Ok(Announce { vips, interface, linger_ms, hold_s })
}

/// Parses the name of an interface.
pub fn interface(value: &Value<'_>) -> Result<String, ConfigError> {
    let sound = |text: &str| {
        (1..=INTERFACE_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            && ![".", ".."].contains(&text)
    };
    let example = "1 to 15 letters, digits, '-', '_' and '.'";
    value.parsed("the name of an interface", example, |text| sound(text).then(|| text.to_owned()))
}
