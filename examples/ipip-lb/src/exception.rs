//! The exception path: what a port receives that is not for the balancer goes to the kernel, by a TAP
//! interface, and what the kernel sends by that goes out of the port.

use crate::balance::Route;
use crate::config::Config;
use crate::failure::BadInput;
use hotloop::dpdk::{Eal, Port};
use hotloop::packet::PortId;
use hotloop_ops::kernel::{KernelPort, Mbufs, PuntLimits, TapConfig};

/// The route to the kernel. Ports have numbers from 0.
pub const KERNEL: Route = Route(u16::MAX);

/// Where packets go that are not for the balancer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Exception {
    /// The port whose packets go to the kernel.
    pub ingress: PortId,
    /// The way out of that port, for what the kernel sends.
    pub wire: Route,
}

/// The interface of the port that has one.
///
/// # Errors
/// There can't be such an interface.
pub fn open(
    eal: Eal,
    config: &Config,
    ports: &[&Port],
) -> Result<Option<(KernelPort<Mbufs>, Exception)>, BadInput> {
    let mut configured = (0..).zip(&config.ports).zip(ports);
    let found = configured.find_map(|((index, configured), port)| {
        Some((Route(index), configured, port, configured.kernel_interface.as_ref()?))
    });
    let Some((wire, configured, port, interface)) = found else { return Ok(None) };
    let wrong =
        |what: String| BadInput::new(format!("port.{}.kernel_interface: {what}", configured.name));
    let tap = TapConfig { mac: Some(port.mac()), ..TapConfig::named(interface) };
    let kernel = KernelPort::open(&tap, PuntLimits::default(), mbufs(eal, config));
    let kernel = kernel.map_err(|error| wrong(error.to_string()))?;
    let ingress = port.id().map_err(|error| wrong(error.to_string()))?;
    Ok(Some((kernel, Exception { ingress, wire })))
}

/// Mbufs for what the kernel sends, which may leave by any port.
pub fn mbufs(eal: Eal, config: &Config) -> Mbufs {
    let descriptors = |port: &crate::config::Port| port.settings.port_config().tx_descriptor_count;
    let each: usize = config.ports.iter().map(|port| usize::from(descriptors(port))).sum();
    let is_on_bus = config.ports.iter().any(|port| port.device.contains(':'));
    Mbufs::new(eal, config.balancer.mtu, each * config.engine.workers, is_on_bus)
}
