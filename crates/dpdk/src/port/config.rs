//! A port's configuration and its capabilities.

use super::rss::RssFields;
use crate::Mempool;
use crate::mbuf::HEADROOM_BYTES;

/// The symmetric RSS key of Woo and Park ("Scalable TCP Session Monitoring with Symmetric
/// Receive-side Scaling", 2012): both directions of a flow hash to the same value. The key repeats
/// these two bytes.
pub const RSS_KEY_SYMMETRIC: [u8; 2] = [0x6d, 0x5a];

/// The configuration of a port, applied when its queues are started.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// RX descriptors of each queue; rounded to the device's limits.
    pub rx_descriptor_count: u16,
    /// TX descriptors of each queue; rounded to the device's limits.
    pub tx_descriptor_count: u16,
    /// The largest packet in bytes, without Ethernet header; `None` for the device's own.
    pub mtu: Option<u16>,
    /// How packets are spread over several RX queues.
    pub rss: RssConfig,
    /// Whether packets to other MAC addresses are received, too. Ignored by devices without such a
    /// mode.
    pub promiscuous: bool,
    /// The pool for received packets; `None` for a pool of the port's own that is large enough.
    pub mempool: Option<Mempool>,
    /// Minimum size of the port's own pool, at most
    /// [`MempoolConfig::MBUF_COUNT_MAX`](crate::MempoolConfig::MBUF_COUNT_MAX). A device with
    /// `infinite_rx=1` needs an mbuf for each packet of its file.
    pub mbuf_count_min: u32,
    /// The size of each mbuf's buffer in the port's own pool, headroom included.
    pub data_room_bytes: u16,
    /// The size of each lcore's cache in the port's own pool; `None` for one that fits the
    /// deployment: [`MempoolConfig::cache_count_for`](crate::MempoolConfig::cache_count_for).
    pub cache_count: Option<u32>,
}

impl Default for PortConfig {
    /// 1,024 descriptors a queue, symmetric RSS over addresses and ports, promiscuous, a pool of
    /// its own with buffers for 2,048 bytes.
    fn default() -> Self {
        Self {
            rx_descriptor_count: 1024,
            tx_descriptor_count: 1024,
            mtu: None,
            rss: RssConfig::default(),
            promiscuous: true,
            mempool: None,
            mbuf_count_min: 0,
            data_room_bytes: 2048 + HEADROOM_BYTES,
            cache_count: None,
        }
    }
}

/// How packets are spread over several RX queues, if the device can.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RssConfig {
    /// The Toeplitz key, of the device's key length; `None` for [`RSS_KEY_SYMMETRIC`], repeated.
    pub key: Option<Vec<u8>>,
    /// The kinds of packets to hash and their fields. Kinds that the device does not offer are left
    /// out.
    pub fields: RssFields,
}

impl Default for RssConfig {
    /// The symmetric key, over addresses, and ports of TCP and UDP.
    fn default() -> Self {
        Self { key: None, fields: RssFields::IP | RssFields::TCP | RssFields::UDP }
    }
}

/// A device's properties and limits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Capabilities {
    /// The driver's name.
    pub driver: String,
    /// Maximum number of RX queues.
    pub rx_queue_count_max: u16,
    /// Maximum number of TX queues.
    pub tx_queue_count_max: u16,
    /// The longest frame that the device can receive, in bytes; `u32::MAX` if there is no known
    /// limit.
    pub frame_bytes_max: u32,
    /// The smallest buffer that the device can receive into, in bytes.
    pub rx_buffer_bytes_min: u32,
    /// Whether the device can receive a packet into several buffers, if configured to.
    pub(crate) scatters: bool,
    /// Whether the device can send a packet from several buffers, if configured to.
    pub(crate) gathers: bool,
    /// The fields that the device can hash for RSS.
    pub rss_fields: RssFields,
    /// The length of the device's RSS key in bytes; 0 if not reported, which means 40.
    pub rss_key_bytes: u8,
    /// The NUMA node of the device, if known.
    pub node: Option<u32>,
}

/// The state of a port's link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Link {
    /// Whether packets can pass.
    pub up: bool,
    /// Speed in Mbit/s; `u32::MAX` if the device does not know it.
    pub speed_mbps: u32,
    /// Whether both directions pass at once.
    pub full_duplex: bool,
}
