//! Configurations of the balancer, by any bytes that are UTF-8.

use hotloop_balancer::services::{Builder, Standing};
use ipip_lb::check::Understood;
use ipip_lb::config::Config;
use ipip_lb::store::layout;

/// Maglev tables of more slots take longer than a fuzzer has, and no other way.
const MAGLEV_SLOTS_MAX: u32 = 1 << 17;

/// Cuts a text into parts for a store, and reads it as what all nodes share.
fn share(text: &str) {
    if let Ok(parts) = layout::split(text) {
        let whole: String = parts.iter().map(layout::Part::text).collect();
        assert_eq!(whole, text);
    }
    if let Err(error) = Config::parse_shared_alone(("shared", text)) {
        let message = error.to_string();
        assert!(message.starts_with("shared:"), "{message}");
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
}

/// Reads the bytes as a configuration. One that is refused says where it is wrong, on one line that
/// shows no control characters; one that is taken can be explained and built.
pub fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    share(text);
    let config = match Config::parse("lb.toml", text) {
        Ok(config) => config,
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("lb.toml"), "{message}");
            assert!(!message.chars().any(char::is_control), "{message:?}");
            return;
        }
    };
    if config.balancer.maglev_slots > MAGLEV_SLOTS_MAX {
        return;
    }
    let understood = Understood(&config);
    assert!(!understood.to_string().is_empty() && understood.to_json().is_object());
    let built = Builder::new(&config.services).build(&config.spec(), &Standing::default());
    assert_eq!(built.expect("room for its backends").all().len(), config.services.len());
}
