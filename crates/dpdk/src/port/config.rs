//! What a port is to be like, and what it can be.

use super::rss::RssFields;
use crate::Mempool;
use crate::mempool::HEADROOM_BYTES;

/// The symmetric RSS key of Woo and Park ("Scalable TCP Session Monitoring with Symmetric
/// Receive-side Scaling", 2012): both directions of a flow hash to the same value. It repeats these
/// two bytes.
pub const RSS_KEY_SYMMETRIC: [u8; 2] = [0x6d, 0x5a];

/// How a port is configured when its queues are started.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// RX descriptors of each queue; rounded to what the device can do.
    pub rx_descriptor_count: u16,
    /// TX descriptors of each queue; rounded to what the device can do.
    pub tx_descriptor_count: u16,
    /// The largest packet in bytes, Ethernet header not counted; what the device has, where it is
    /// `None`.
    pub mtu: Option<u16>,
    /// How packets are spread over several RX queues.
    pub rss: RssConfig,
    /// Whether packets to other MAC addresses are received too. No error where the device has no
    /// such mode.
    pub promiscuous: bool,
    /// The pool that received packets lie in; one of the port's own, large enough, where it is
    /// `None`.
    pub mempool: Option<Mempool>,
    /// The size of the port's own pool is at least this, which is at most
    /// [`MempoolConfig::MBUF_COUNT_MAX`](crate::MempoolConfig::MBUF_COUNT_MAX). A device with
    /// `infinite_rx=1` needs as many as its file has packets.
    pub mbuf_count_min: u32,
    /// The size of each mbuf's buffer in the port's own pool, headroom included.
    pub data_room_bytes: u16,
    /// The size of each lcore's cache in the port's own pool; one that fits the deployment, where it is `None`:
    /// [`MempoolConfig::cache_count_for`](crate::MempoolConfig::cache_count_for).
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

/// How packets are spread over several RX queues, on a device that can.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RssConfig {
    /// The Toeplitz key, of the length the device says; [`RSS_KEY_SYMMETRIC`] repeated, where it is
    /// `None`.
    pub key: Option<Vec<u8>>,
    /// Which packets are hashed, and by what. What the device does not offer is left out.
    pub fields: RssFields,
}

impl Default for RssConfig {
    /// The symmetric key, over addresses, and ports of TCP and UDP.
    fn default() -> Self {
        Self { key: None, fields: RssFields::IP | RssFields::TCP | RssFields::UDP }
    }
}

/// What a device is and can do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Capabilities {
    /// The driver's name.
    pub driver: String,
    /// RX queues it can have.
    pub rx_queue_count_max: u16,
    /// TX queues it can have.
    pub tx_queue_count_max: u16,
    /// The longest frame it can receive, in bytes; `u32::MAX` where it knows no limit.
    pub frame_bytes_max: u32,
    /// The smallest buffer it can receive into, in bytes.
    pub rx_buffer_bytes_min: u32,
    /// Whether it can receive a packet into several buffers, once asked to.
    pub(crate) scatters: bool,
    /// Whether it can send a packet that is in several buffers, once asked to.
    pub(crate) gathers: bool,
    /// What it can hash for RSS.
    pub rss_fields: RssFields,
    /// The length of its RSS key in bytes; 0 where it does not say, and 40 it is.
    pub rss_key_bytes: u8,
    /// The NUMA node it is on, where that is known.
    pub node: Option<u32>,
}

/// The state of a port's link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Link {
    /// Whether packets can pass.
    pub up: bool,
    /// Speed in Mbit/s; `u32::MAX` where the device does not know it.
    pub speed_mbps: u32,
    /// Whether both directions pass at once.
    pub full_duplex: bool,
}
