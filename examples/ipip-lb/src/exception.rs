//! The exception path: packets from a port that are not for the balancer go to the kernel, through
//! a TAP interface, and packets that the kernel sends there leave by the port.

use crate::config::{self, Config, interface_underneath};
use crate::failure::BadInput;
use hotloop::dpdk::{Eal, Port};
use hotloop::packet::PortId;
use hotloop_balancer::balance::Route;
use hotloop_balancer::classify::ReceivingPorts;
use hotloop_kernel::{
    KernelPort, Mbufs, PuntLimits, Takeover, TakeoverError, TapConfig, TapError, restore,
};
use hotloop_ops::socket_path;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Added to a port's number for packets that the kernel sends through its interface. DPDK has 32
/// ports by default.
const FROM_KERNEL: u16 = 127;

/// The interface for a port's packets that are not for the balancer.
#[derive(Debug)]
pub struct KernelInterface {
    /// Dropped before the interface.
    takeover: Option<Takeover>,
    port: KernelPort<Mbufs>,
    /// The port whose packets go to the interface.
    ingress: PortId,
    /// The ingress port in packets from the interface.
    number: PortId,
    /// The route to the interface.
    route: Route,
    /// The route out of the port.
    wire: Route,
}

impl KernelInterface {
    /// The interface, as a source and a sink of packets.
    #[must_use]
    pub const fn port(&self) -> &KernelPort<Mbufs> {
        &self.port
    }

    /// The route to the interface.
    #[must_use]
    pub const fn route(&self) -> Route {
        self.route
    }

    /// The route out of its port.
    #[must_use]
    pub const fn wire(&self) -> Route {
        self.wire
    }

    /// Leaves everything taken over in place, for a program that continues in this one's place.
    pub fn leave(self) {
        self.takeover.into_iter().for_each(Takeover::leave);
    }

    /// Sets the routes of packets that are not for the balancer, in both directions.
    pub fn set_ways(&self, ports: &mut ReceivingPorts) {
        ports.set_punted(self.ingress, self.route);
        ports.set_punted(self.number, self.wire);
    }
}

/// Opens the interfaces of the ports that have one. Interfaces with a file from the predecessor, by
/// name, are adopted.
///
/// # Errors
/// If an interface can't be made.
pub fn open(
    eal: Eal,
    config: &Config,
    ports: &[&Port],
    mut inherited: Option<&mut HashMap<String, OwnedFd>>,
) -> Result<Vec<KernelInterface>, BadInput> {
    if inherited.is_none() {
        give_back();
    }
    let mut interfaces = Vec::new();
    for ((index, configured), port) in (0..).zip(&config.ports).zip(ports) {
        if let Some(name) = &configured.kernel_interface {
            let wrong =
                |key, problem| BadInput::new(format!("port.{}.{key}: {problem}", configured.name));
            let file = inherited.as_mut().and_then(|files| files.remove(name));
            let inherits = file.is_some();
            let opened = open_one(eal, config, index, port, name, file)
                .map_err(|problem| wrong("kernel_interface", problem))?;
            let takeover = take_over(configured, name, inherits)
                .map_err(|error| wrong("takeover", error.to_string()))?;
            interfaces.push(KernelInterface { takeover, ..opened });
        }
    }
    if inherited.is_some() {
        // Settings that the predecessor had taken over, and this program has not.
        give_back();
    }
    Ok(interfaces)
}

fn open_one(
    eal: Eal,
    config: &Config,
    index: u16,
    port: &Port,
    name: &str,
    file: Option<OwnedFd>,
) -> Result<KernelInterface, String> {
    let ingress = port.id().map_err(|error| error.to_string())?;
    if ingress.number() >= FROM_KERNEL {
        return Err(format!("port number {ingress} of DPDK is too high; give up other devices"));
    }
    let number = PortId::new(ingress.number() + FROM_KERNEL);
    let tap = TapConfig { mac: Some(port.mac()), ..TapConfig::named(name) };
    let mbufs = mbufs(eal, config).with_ingress(number);
    let peers = config.ports[usize::from(index)].kernel_peers.clone();
    let limits = PuntLimits::default().with_peers(peers);
    let port = open_or_adopt(&tap, file, limits, mbufs);
    let port = port.map_err(|error| error.to_string())?;
    let (route, wire) = (Route::to_kernel(index), Route(index));
    Ok(KernelInterface { takeover: None, port, ingress, number, route, wire })
}

/// Makes an interface, or adopts the one of a file.
pub fn open_or_adopt(
    tap: &TapConfig,
    file: Option<OwnedFd>,
    limits: PuntLimits,
    mbufs: Mbufs,
) -> Result<KernelPort<Mbufs>, TapError> {
    match file {
        Some(file) => KernelPort::adopt(tap, file, limits, mbufs),
        None => KernelPort::open(tap, limits, mbufs),
    }
}

/// The folder with the records of settings to restore.
fn folder() -> PathBuf {
    socket_path("ipip-lb").parent().map_or_else(PathBuf::new, PathBuf::from)
}

/// Restores settings that a killed balancer had taken over.
fn give_back() {
    match restore(&folder()) {
        Ok(names) => names.iter().for_each(|name| {
            tracing::info!(
                "interface {name} has its addresses and routes again, of an earlier run"
            );
        }),
        Err(error) => tracing::warn!("{error}"),
    }
}

/// Makes the interface `to` take over the settings of the interface that the port's device receives
/// by, if configured.
fn take_over(
    configured: &config::Port,
    to: &str,
    inherits: bool,
) -> Result<Option<Takeover>, TakeoverError> {
    let Some(from) = interface_underneath(&configured.device) else { return Ok(None) };
    let begin = if inherits { Takeover::adopt } else { Takeover::begin };
    let takeover = configured.takeover.then(|| begin(from, to, &folder()));
    let mut takeover = takeover.transpose()?;
    // An XDP program hides the packets that it takes from the kernel.
    if configured.device.starts_with("net_af_xdp") {
        return Ok(takeover);
    }
    let name = &configured.name;
    let remedy = match takeover.as_mut().map(Takeover::silence) {
        Some(Ok(())) => return Ok(takeover),
        Some(Err(error)) => error.to_string(),
        None => "write takeover = true, or take its addresses and ARP off it".to_owned(),
    };
    tracing::warn!("port.{name}: the kernel answers to what {from} receives, too: {remedy}");
    Ok(takeover)
}

/// Mbufs for the kernel's packets, which may leave by any port.
pub fn mbufs(eal: Eal, config: &Config) -> Mbufs {
    let descriptors = |port: &config::Port| port.settings.port_config().tx_descriptor_count;
    let each: usize = config.ports.iter().map(|port| usize::from(descriptors(port))).sum();
    let is_on_bus = config.ports.iter().any(|port| port.device.contains(':'));
    Mbufs::new(eal, config.balancer.mtu, each * config.engine.workers, is_on_bus)
}
