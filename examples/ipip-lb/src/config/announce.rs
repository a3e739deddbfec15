//! `[announce]`.

use super::document::{Section, Value};
use super::words::ANNOUNCED;
use super::{Announce, ConfigError};

/// The interface that VIPs are routed to, where nothing else is written.
const INTERFACE: &str = "ipip-lb";

/// The most bytes of an interface's name (`IFNAMSIZ`, netdevice(7)).
const INTERFACE_BYTES_MAX: usize = 15;

pub fn announce(section: &Section<'_>) -> Result<Announce, ConfigError> {
    section.allow_only(&["vips", "interface"])?;
    let example = "vips = \"ready\"";
    let vips = section.required("vips", example)?.choice("which VIPs are announced", ANNOUNCED)?;
    let interface =
        section.optional("interface").map_or(Ok(INTERFACE.to_owned()), |it| interface(&it))?;
    Ok(Announce { vips, interface })
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
