//! `[announce]`.

use super::document::{Section, Value};
use super::words::ANNOUNCED;
use super::{Announce, ConfigError};
use std::time::Duration;

/// The interface that VIPs are routed to, where nothing else is written.
const INTERFACE: &str = "ipip-lb";

/// How long a balancer goes on after it has withdrawn its VIPs, in milliseconds, where nothing else is
/// written: several times what a daemon takes to learn of it and to say so to its neighbours.
const LINGER_MS: u32 = 1_000;

/// The most that may be written: less than the unit of systemd in `packaging` has for the end.
const LINGER_MS_MAX: u32 = 20_000;

/// How long a VIP that was withdrawn must be ready before it is announced again, in seconds, where nothing
/// else is written.
const HOLD_S: u32 = 1;

/// The most bytes of an interface's name (`IFNAMSIZ`, netdevice(7)).
const INTERFACE_BYTES_MAX: usize = 15;

/// The longest hold.
pub const HOLD_MAX: Duration = Duration::from_secs(300);

pub fn announce(section: &Section<'_>) -> Result<Announce, ConfigError> {
    section.allow_only(&["vips", "interface", "linger_ms", "hold_s"])?;
    let example = "vips = \"ready\"";
    let vips = section.required("vips", example)?.choice("which VIPs are announced", ANNOUNCED)?;
    let interface =
        section.optional("interface").map_or(Ok(INTERFACE.to_owned()), |it| interface(&it))?;
    let linger_ms = section.integer_or("linger_ms", 0..=LINGER_MS_MAX, LINGER_MS)?;
    let hold_s = section.integer_or("hold_s", 0..=HOLD_MAX.as_secs() as u32, HOLD_S)?;
    Ok(Announce { vips, interface, linger_ms, hold_s })
}

/// The name of an interface.
pub fn interface(value: &Value<'_>) -> Result<String, ConfigError> {
    let sound = |text: &str| {
        (1..=INTERFACE_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            && ![".", ".."].contains(&text)
    };
    let example = "1 to 15 letters, digits, '-', '_' and '.'";
    value.parsed("the name of an interface", example, |text| sound(text).then(|| text.to_owned()))
}
