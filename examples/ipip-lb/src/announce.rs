//! The VIPs of a balancer that are ready, for [`VipAnnouncer`], and the interface that they are
//! routed to.

use crate::config::{Announce, Announced, Config};
use crate::exception::{mbufs, open_or_adopt};
use crate::failure::BadInput;
use hotloop::dpdk::Eal;
use hotloop_balancer::services::ServiceTable;
use hotloop_balancer::spec::{ServiceSpec, Side};
use hotloop_kernel::{
    Hops, KernelHop, KernelPort, Mbufs, PuntLimits, TapConfig, VipAnnouncer, VipGuard, VipStates,
    local_addresses,
};
use hotloop_ops::StallEvent;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a tunnel's outer header, in bytes.
const OUTER_BYTES_MAX: u32 = 40;

/// The interface that VIPs are routed to, and the announcer, if VIPs are announced.
///
/// # Errors
/// If a VIP is an address of the host, or the interface or its routes can't be made.
pub fn open(
    eal: Eal,
    config: &Config,
    guard: Option<VipGuard>,
    inherited: Option<&mut HashMap<String, OwnedFd>>,
) -> Result<Option<(KernelPort<Mbufs>, VipAnnouncer)>, BadInput> {
    let Some(announce) = &config.announce else { return Ok(None) };
    let inherits = inherited.is_some();
    let file = inherited.and_then(|files| files.remove(&announce.interface));
    let interface = open_interface(eal, config, announce, file)?;
    let hold = Duration::from_secs(announce.hold_s.into());
    let announcer = VipAnnouncer::begin(interface.interface_index(), hold, guard, inherits);
    let announcer = announcer
        .map_err(|error| BadInput::new(format!("announce: routes can't be installed: {error}")))?;
    Ok(Some((interface, announcer)))
}

/// Makes the interface that VIPs are routed to, or adopts the predecessor's from its file. Packets
/// from the host itself to a VIP come out of it, and are balanced like packets from ports.
fn open_interface(
    eal: Eal,
    config: &Config,
    announce: &Announce,
    file: Option<OwnedFd>,
) -> Result<KernelPort<Mbufs>, BadInput> {
    let local = local_addresses();
    let local = local.map_err(|error| BadInput::new(format!("the host's addresses: {error}")))?;
    check_local(config, &local)?;
    let tap = TapConfig {
        mtu_bytes: u32::from(config.balancer.mtu).saturating_sub(OUTER_BYTES_MAX),
        resolves_neighbours: false,
        ..TapConfig::named(&announce.interface)
    };
    open_or_adopt(&tap, file, PuntLimits::default(), mbufs(eal, config))
        .map_err(|error| BadInput::new(format!("announce.interface: {error}")))
}

/// Refuses a VIP that is an address of the host: the host's kernel would answer clients as well.
fn check_local(config: &Config, local: &BTreeSet<IpAddr>) -> Result<(), BadInput> {
    for service in &config.services {
        if let Some(address) = local.iter().find(|own| service.address.contains(**own)) {
            return Err(BadInput::new(format!(
                "service.{}.address: {address} is an address of this host, whose kernel would answer \
                 its clients with RST; delete it from its interface (ip address del)",
                service.name
            )));
        }
    }
    Ok(())
}

/// The watching thread's callback when a thread hangs, or continues: VIPs are withdrawn at once,
/// and until all threads continue.
pub fn on_stall(announcer: &VipAnnouncer) -> impl Fn(&StallEvent) + Send + use<> {
    let reporter = announcer.hang_reporter();
    // The names of hanging cores; the control thread has none.
    let hanging = RefCell::new(BTreeSet::new());
    move |event| {
        let mut hanging = hanging.borrow_mut();
        match event {
            StallEvent::Stuck { core, .. } | StallEvent::Starved { core, .. } => {
                hanging.insert(Some(core.clone()))
            }
            StallEvent::Resumed { core } => hanging.remove(&Some(core.clone())),
            StallEvent::ControlStalled { .. } => hanging.insert(None),
            StallEvent::ControlResumed => hanging.remove(&None),
            _ => false,
        };
        reporter.report(!hanging.is_empty());
    }
}

/// The source of the VIPs' states: the last service table that was examined, and the kernel's next
/// hops.
#[derive(Debug, Default)]
pub struct ReadyVips(Option<(Arc<ServiceTable>, Option<Arc<Hops>>)>);

impl ReadyVips {
    /// Determines the VIPs that are ready in this service table, which was compiled from `config`,
    /// and with the kernel's next hops, if packets to backends use them. `None` if nothing has
    /// changed.
    pub fn states(
        &mut self,
        config: &Config,
        table: &Arc<ServiceTable>,
        hops: Option<&Arc<Hops>>,
    ) -> Option<VipStates> {
        let is_same = self.0.as_ref().is_some_and(|(seen_table, seen_hops)| {
            let same_hops = seen_hops.as_ref().map(Arc::as_ptr) == hops.map(Arc::as_ptr);
            same_hops && Arc::ptr_eq(seen_table, table)
        });
        if is_same {
            return None;
        }
        self.0 = Some((Arc::clone(table), hops.cloned()));
        let by_kernel = config.goes_by_kernel(Side::has_backends);
        let to_backends = hops.filter(|_| by_kernel).map(Arc::as_ref);
        let ready = |is_met: fn(Option<&KernelHop>) -> bool| {
            ready(config, table, |backend| to_backends.is_none_or(|hops| is_met(hops.of(backend))))
        };
        Some(VipStates {
            ready: ready(|hop| hop.is_some_and(KernelHop::is_known)),
            resolving: ready(|hop| !hop.is_some_and(KernelHop::has_failed)),
            configured: vips(config.services.iter()),
        })
    }
}

/// The VIPs of a service table that are ready: a service at that address has a backend that is up,
/// may get new connections, and has a valid next hop. Services that are always announced are ready
/// with any backend, and without backends.
fn ready(
    config: &Config,
    table: &ServiceTable,
    has_hop: impl Fn(IpAddr) -> bool,
) -> BTreeSet<IpAddr> {
    let announce = config.announce.as_ref();
    let is_always = announce.is_some_and(|announce| announce.vips == Announced::Always);
    let have_all =
        |service: &ServiceSpec| service.backends.iter().all(|backend| has_hop(backend.address));
    let mut is_ready: Vec<_> =
        config.services.iter().map(|service| is_always && have_all(service)).collect();
    for target in table.targets() {
        if let Some(service) = target.service {
            let is_live = is_always || target.is_up && target.weight > 0;
            is_ready[service as usize] |= is_live && has_hop(target.address());
        }
    }
    let services = config.services.iter().zip(is_ready);
    vips(services.filter_map(|(service, is_ready)| is_ready.then_some(service)))
}

/// The VIPs of services. A service with a prefix as its address has none: its addresses are
/// announced by hand.
fn vips<'a>(services: impl Iterator<Item = &'a ServiceSpec>) -> BTreeSet<IpAddr> {
    let hosts = services.filter(|service| service.address.is_host());
    hosts.map(|service| service.address.network()).collect()
}
