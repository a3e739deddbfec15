//! Configuring and starting a device with the claimed queues.

use super::config::{PortConfig, RSS_KEY_SYMMETRIC};
use super::inner::{Inner, State};
use super::rss::RssFields;
use crate::errno::errno_text;
use crate::lock::Control;
use crate::mbuf::HEADROOM_BYTES;
use crate::mbuf_count::MempoolNeed;
use crate::mempool::MempoolConfig;
use crate::{Error, Mempool, log};
use hotloop_dpdk_sys as sys;
use hotloop_stage::Limits;
use std::ffi::c_int;
use std::ptr;

/// The key length of drivers that don't report one (`rte_eth_rss_conf`).
const RSS_KEY_BYTES_DEFAULT: usize = 40;

/// Maximum frame length beyond the MTU in bytes: the Ethernet header, two VLAN tags, the FCS.
const FRAME_OVERHEAD_BYTES: usize = 14 + 2 * 4 + 4;

/// The default length of net_null's frames: `size=`.
const NET_NULL_SIZE_DEFAULT: usize = 64;

/// Configures and starts the port with the pool in the state, or with a fitting one, which the
/// state then keeps.
pub(super) fn start(
    port: &Inner,
    control: &mut Control,
    state: &mut State,
    port_id: u16,
    limits: &Limits,
) -> Result<(), Error> {
    let step = Step { port, port_id };
    let (rx_count, tx_count) = port.configured(state);
    step.configure(control, rx_count, tx_count)?;
    let (rx_descriptors, tx_descriptors) = step.descriptors(control)?;
    if rx_count > 0 {
        let default_cache_count = || MempoolConfig::cache_count_for(limits.is_pipeline);
        let need = MempoolNeed {
            rx_descriptor_count: usize::from(rx_count) * usize::from(rx_descriptors),
            tx_descriptor_count: control.tx_descriptors.values().sum(),
            in_flight_count: limits.in_flight_max,
            thread_count: limits.thread_count,
            cache_count: port.config.cache_count.unwrap_or_else(default_cache_count),
        };
        let mempool = match &state.mempool {
            Some(mempool) => mempool.clone(),
            None => step.mempool(control, &need)?,
        };
        step.check_frames_fit(&mempool)?;
        for index in 0..rx_count {
            step.set_up_rx(control, index, rx_descriptors, &mempool)?;
        }
        state.mempool = Some(mempool);
    }
    for index in 0..tx_count {
        step.set_up_tx(control, index, tx_descriptors)?;
    }
    step.start(control)
}

/// The steps; each needs the control lock.
struct Step<'a> {
    port: &'a Inner,
    /// Invariant: the number of `port`, which exists and is not started before the last step:
    /// `Inner::start` and `Inner::reopen` call [`start`] when they have plugged it in, with the
    /// state locked.
    port_id: u16,
}

impl Step<'_> {
    fn configure(&self, _: &Control, rx_count: u16, tx_count: u16) -> Result<(), Error> {
        let config = &self.port.config;
        let fields = config.rss.fields.and(self.port.capabilities.rss_fields);
        let fields = if rx_count > 1 { fields } else { RssFields::NONE };
        let key = if fields == RssFields::NONE { Vec::new() } else { self.rss_key()? };
        let wanted = sys::sh_port_config {
            rss_fields: fields.bits(),
            rss_key: key.as_ptr(),
            rss_key_bytes: key.len() as u8,
            scatters: self.needs_scatter(),
            // A stage may send a chain at any time.
            gathers: self.port.capabilities.gathers,
            mtu: config.mtu.unwrap_or_default(),
            rx_queue_count: rx_count,
            tx_queue_count: tx_count,
        };
        let step =
            format!("configuring {rx_count} RX and {tx_count} TX queues{}", mtu_text(config));
        // SAFETY: 1. The port exists and is not started, by `port_id`'s invariant. 2. `wanted` and
        // `key` live during the call, which copies them. 3. The control lock is held.
        self.run(&step, || unsafe { sys::sh_port_configure(self.port_id, &wanted) })
    }

    /// Whether frames of the MTU need several buffers. The device must then be configured for that,
    /// which may make it slower.
    fn needs_scatter(&self) -> bool {
        let config = &self.port.config;
        let data_room_bytes = match &config.mempool {
            Some(mempool) => mempool.config().data_room_bytes,
            None => config.data_room_bytes,
        };
        let room = usize::from(data_room_bytes.saturating_sub(HEADROOM_BYTES));
        let frame_bytes = |mtu: u16| usize::from(mtu) + FRAME_OVERHEAD_BYTES;
        self.port.capabilities.scatters && config.mtu.is_some_and(|mtu| frame_bytes(mtu) > room)
    }

    /// The key, in the device's length.
    fn rss_key(&self) -> Result<Vec<u8>, Error> {
        let bytes = match self.port.capabilities.rss_key_bytes {
            0 => RSS_KEY_BYTES_DEFAULT,
            bytes => usize::from(bytes),
        };
        match &self.port.config.rss.key {
            Some(key) if key.len() == bytes => Ok(key.clone()),
            Some(key) => Err(Error::Unsupported {
                device: self.port.text(),
                wanted: format!("an RSS key of {} bytes", key.len()),
                found: format!("one of {bytes} bytes"),
            }),
            None => Ok(RSS_KEY_SYMMETRIC.iter().copied().cycle().take(bytes).collect()),
        }
    }

    /// Descriptors per queue, as near to the configuration as the device allows.
    fn descriptors(&self, _: &Control) -> Result<(u16, u16), Error> {
        let config = &self.port.config;
        let (mut rx, mut tx) = (config.rx_descriptor_count, config.tx_descriptor_count);
        let step = format!("setting {rx} RX and {tx} TX descriptors");
        // SAFETY: 1. The port exists, by `port_id`'s invariant. 2. Both numbers are written during the
        // call.
        self.run(&step, || unsafe {
            sys::rte_eth_dev_adjust_nb_rx_tx_desc(self.port_id, &mut rx, &mut tx)
        })?;
        Ok((rx, tx))
    }

    /// The configured pool, if it is large enough, or a pool of the port's own.
    fn mempool(&self, control: &mut Control, need: &MempoolNeed) -> Result<Mempool, Error> {
        let (config, capabilities) = (&self.port.config, &self.port.capabilities);
        if let Some(mempool) = &config.mempool {
            mempool.require(&MempoolNeed { cache_count: mempool.config().cache_count, ..*need })?;
            if !mempool.config().contiguous && !self.port.device.is_virtual() {
                return Err(Error::MempoolConfig {
                    problem: format!(
                        "device \"{}\" reads and writes memory by itself, but the mbufs are packed: \
                         make the mempool with `contiguous: true`",
                        self.port.device.text()
                    ),
                });
            }
            return Ok(mempool.clone());
        }
        let mbuf_count = need.mbuf_count().max(config.mbuf_count_min as usize);
        let mbuf_count = mbuf_count.max(3 * need.cache_count as usize);
        let max = MempoolConfig::MBUF_COUNT_MAX;
        let mbuf_count = u32::try_from(mbuf_count).ok().filter(|count| *count <= max);
        let mbuf_count = mbuf_count.ok_or_else(|| Error::MempoolConfig {
            problem: format!(
                "{} mbufs at least, and {need}, are wanted: at most {max} are possible",
                config.mbuf_count_min
            ),
        })?;
        // One less than a power of two: no memory wasted, and few shapes of pools to keep.
        let mbuf_count = (mbuf_count + 1).next_power_of_two() - 1;
        let config = MempoolConfig {
            mbuf_count,
            data_room_bytes: config.data_room_bytes,
            cache_count: need.cache_count,
            node: capabilities.node,
            contiguous: !self.port.device.is_virtual(),
        };
        Mempool::at_least(control, &config)
    }

    /// Checks that received frames fit into a buffer, if the driver doesn't check.
    fn check_frames_fit(&self, mempool: &Mempool) -> Result<(), Error> {
        let room = usize::from(mempool.config().data_room_bytes - HEADROOM_BYTES);
        let found = |problem| Err(Error::MempoolConfig { problem });
        let smallest = self.port.capabilities.rx_buffer_bytes_min as usize;
        if room < smallest {
            return found(format!(
                "device \"{}\" needs buffers of at least {smallest} bytes, these have {room}: \
                 enlarge `data_room_bytes`",
                self.port.device.text()
            ));
        }
        if self.port.capabilities.driver != "net_null" {
            return Ok(());
        }
        let size = match self.port.device.argument("size") {
            None => NET_NULL_SIZE_DEFAULT,
            // The driver also takes hexadecimal and octal numbers, which are refused here.
            Some(text) if text.starts_with('0') => usize::MAX,
            Some(text) => text.parse().unwrap_or(usize::MAX),
        };
        if size > room {
            return found(format!(
                "device \"{}\": its size= must be a decimal number up to the {room} bytes of a \
                 buffer: make it smaller, or enlarge `data_room_bytes`",
                self.port.device.text()
            ));
        }
        Ok(())
    }

    fn set_up_rx(
        &self,
        _: &Control,
        index: u16,
        descriptors: u16,
        mempool: &Mempool,
    ) -> Result<(), Error> {
        let step = format!("setting up RX queue {index} with {descriptors} descriptors");
        let node = self.node();
        let pool = mempool.as_ptr();
        // SAFETY: 1. The port exists and is not started, by `port_id`'s invariant, and `start` has
        // configured it with more than `index` queues. 2. The pool lives as long as the process:
        // `Mempool::as_ptr`. 3. No configuration means the driver's own.
        self.run(&step, || unsafe {
            sys::rte_eth_rx_queue_setup(self.port_id, index, descriptors, node, ptr::null(), pool)
        })
    }

    fn set_up_tx(&self, _: &Control, index: u16, descriptors: u16) -> Result<(), Error> {
        let step = format!("setting up TX queue {index} with {descriptors} descriptors");
        let node = self.node();
        // SAFETY: 1. The port exists and is not started, by `port_id`'s invariant, and `start` has
        // configured it with more than `index` queues. 2. No configuration means the driver's own,
        // with the port's offloads.
        self.run(&step, || unsafe {
            sys::rte_eth_tx_queue_setup(self.port_id, index, descriptors, node, ptr::null())
        })
    }

    fn start(&self, _: &Control) -> Result<(), Error> {
        // SAFETY: 1. The port exists, by `port_id`'s invariant, and `start` has set up its queues. 2. The
        // control lock is held.
        self.run("starting it", || unsafe { sys::rte_eth_dev_start(self.port_id) })?;
        if self.port.config.promiscuous {
            // SAFETY: 1. The port exists, by `port_id`'s invariant. 2. The control lock is held. A
            // device without the mode receives everything, or describes its mode in its link.
            unsafe { sys::rte_eth_promiscuous_enable(self.port_id) };
        }
        Ok(())
    }

    fn node(&self) -> u32 {
        self.port.capabilities.node.unwrap_or(sys::SH_SOCKET_ID_ANY as u32)
    }

    /// Runs one step and turns its result into an error.
    fn run(&self, step: &str, call: impl FnOnce() -> c_int) -> Result<(), Error> {
        let (result, said) = log::capture(call);
        if result >= 0 {
            return Ok(());
        }
        Err(Error::Configure {
            device: self.port.text(),
            step: step.into(),
            error: errno_text(result),
            said,
            remedy: "compare with what Port::capabilities() says".into(),
        })
    }
}

fn mtu_text(config: &PortConfig) -> String {
    config.mtu.map_or(String::new(), |mtu| format!(" and an MTU of {mtu}"))
}
