//! Configurations of the balancer, from any bytes that are UTF-8.

use hotloop_balancer::services::{Builder, Standing};
use hotloop_cluster::store::layout;
use ipip_lb::check::Understood;
use ipip_lb::config::Config;

/// Larger Maglev tables take too long for a fuzzer, and take no other code path.
const MAGLEV_SLOTS_MAX: u32 = 1 << 17;

/// Cuts a text into parts for a store, and reads them as the configuration that all nodes share.
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

/// Reads the bytes as a configuration. A refusal must name the place of the error, on one line
/// without control characters; an accepted configuration can be explained and built.
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
