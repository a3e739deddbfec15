//! The exception path: what a port receives that is not for the balancer goes to the kernel, by a TAP
//! interface, and what the kernel sends by that goes out of the port.

use crate::config::{self, Config, interface_underneath};
use crate::failure::BadInput;
use hotloop::dpdk::{Eal, Port};
use hotloop::packet::PortId;
use hotloop_balancer::arrival::Ports;
use hotloop_balancer::balance::Route;
use hotloop_kernel::{
    KernelPort, Mbufs, PuntLimits, Takeover, TakeoverError, TapConfig, TapError, restore,
};
use hotloop_ops::socket_path;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// What is added to a port's number for the packets that the kernel sends by its interface. DPDK has 32
/// ports, unless it was built otherwise.
const FROM_KERNEL: u16 = 127;

/// The interface by which the kernel gets what a port receives that is not for the balancer.
#[derive(Debug)]
pub struct KernelInterface {
    /// Ends before the interface does.
    takeover: Option<Takeover>,
    port: KernelPort<Mbufs>,
    /// The port whose packets go there.
    ingress: PortId,
    /// What packets from it say.
    number: PortId,
    /// The way to it.
    route: Route,
    /// The way out of the port.
    wire: Route,
}

impl KernelInterface {
    /// The interface, as a source and a sink of packets.
    #[must_use]
    pub const fn port(&self) -> &KernelPort<Mbufs> {
        &self.port
    }

    /// The way to it.
    #[must_use]
    pub const fn route(&self) -> Route {
        self.route
    }

    /// The way out of its port.
    #[must_use]
    pub const fn wire(&self) -> Route {
        self.wire
    }

    /// Leaves what it has taken over as it is, to a program that goes on in this one's place.
    pub fn leave(self) {
        self.takeover.into_iter().for_each(Takeover::leave);
    }

    /// Sets where packets go that are not for the balancer, in both directions.
    pub fn set_ways(&self, ports: &mut Ports) {
        ports.set_punted(self.ingress, self.route);
        ports.set_punted(self.number, self.wire);
    }
}

/// The interfaces of the ports that have one. This program goes on with those whose files a predecessor has left, by
/// their names.
///
/// # Errors
/// There can't be such an interface.
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
            let file = inherited.as_mut().and_then(|it| it.remove(name));
            let inherits = file.is_some();
            let opened = open_one(eal, config, (index, port), (name, file))
                .map_err(|problem| wrong("kernel_interface", problem))?;
            let takeover = take_over(configured, name, inherits)
                .map_err(|error| wrong("takeover", error.to_string()))?;
            interfaces.push(KernelInterface { takeover, ..opened });
        }
    }
    if inherited.is_some() {
        // What the predecessor had taken over, and this program has not.
        give_back();
    }
    Ok(interfaces)
}

fn open_one(
    eal: Eal,
    config: &Config,
    (index, port): (u16, &Port),
    (name, file): (&str, Option<OwnedFd>),
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
    let port = open_or_adopt((&tap, file), limits, mbufs);
    let port = port.map_err(|error| error.to_string())?;
    let (route, wire) = (Route::to_kernel(index), Route(index));
    Ok(KernelInterface { takeover: None, port, ingress, number, route, wire })
}

/// Makes an interface, or goes on with that of a file.
pub fn open_or_adopt(
    (tap, file): (&TapConfig, Option<OwnedFd>),
    limits: PuntLimits,
    mbufs: Mbufs,
) -> Result<KernelPort<Mbufs>, TapError> {
    match file {
        Some(file) => KernelPort::adopt((tap, file), limits, mbufs),
        None => KernelPort::open(tap, limits, mbufs),
    }
}

/// Where it is written down what is to be put back.
fn folder() -> PathBuf {
    socket_path("ipip-lb").parent().map_or_else(PathBuf::new, PathBuf::from)
}

/// Puts back what was taken over by a balancer that was killed.
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

/// Has the interface `to` take over the one that the port's device receives by, where that is wanted.
fn take_over(
    configured: &config::Port,
    to: &str,
    inherits: bool,
) -> Result<Option<Takeover>, TakeoverError> {
    let Some(from) = interface_underneath(&configured.device) else { return Ok(None) };
    let begin = if inherits { Takeover::adopt } else { Takeover::begin };
    let takeover = configured.takeover.then(|| begin(from, to, &folder()));
    let mut takeover = takeover.transpose()?;
    // An XDP program keeps from the kernel what it takes.
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

/// Mbufs for what the kernel sends, which may leave by any port.
pub fn mbufs(eal: Eal, config: &Config) -> Mbufs {
    let descriptors = |port: &config::Port| port.settings.port_config().tx_descriptor_count;
    let each: usize = config.ports.iter().map(|port| usize::from(descriptors(port))).sum();
    let is_on_bus = config.ports.iter().any(|port| port.device.contains(':'));
    Mbufs::new(eal, config.balancer.mtu, each * config.engine.workers, is_on_bus)
}
