//! NIC drivers, and the guarantees found in the source of each in DPDK 22.11, 23.11, 24.11 and 25.11.
//!
//! The guarantees hold for the way in which this crate sets a port up: scattering is the only RX
//! offload used, and all RX queues have one pool. A NIC is trusted to complete a descriptor once,
//! and to write what it received: it may write to memory anyway. If a hypervisor writes the
//! lengths, they are checked.
//!
//! Every receive function was read, whether scalar, scattered or vectorised, including its
//! behaviour with an empty pool. A driver is also left out of the table of fresh ones if its stop
//! may free mbufs that it has handed out, and if that can happen with a pool that was never empty.
//!
//! Drivers of buses other than PCI are left out: this crate opens none of their devices.

use super::{Driver, Missed, UNKNOWN};

/// Mbufs fresh from the pool, with lengths that agree: `pkt_len` is the driver's own sum, or the
/// length of the single segment, and the NIC knows the size of a buffer.
static VALID: Driver =
    Driver { fresh_mbufs: true, valid_lengths: true, missed: Missed::Driver, ..UNKNOWN };

/// [`VALID`], but the driver does not count missed packets.
static VALID_UNCOUNTED: Driver = Driver { missed: Missed::Unknown, ..VALID };

/// Mbufs fresh from the pool, in chains with the right number of segments, but with lengths that may disagree.
static CHECKED: Driver = Driver { valid_lengths: false, ..VALID };

/// Drivers that receive fresh mbufs: the name, a DPDK function that shows it, and the properties.
pub(super) static FRESH: [(&str, &str, &Driver); 32] = [
    // The driver takes the length of a packet from its first descriptor, even if the packet has
    // several.
    ("net_atlantic", "atl_recv_pkts", &CHECKED),
    // It rounds buffers up to 64 bytes. Unscattered, the last part of a frame longer than a buffer
    // comes with the length of the whole.
    ("net_axgbe", "axgbe_recv_pkts", &CHECKED),
    // The lengths of a packet and of its segment are two fields written by the NIC.
    ("net_bnx2x", "bnx2x_recv_pkts", &CHECKED),
    ("net_bnx2xvf", "bnx2x_recv_pkts", &CHECKED),
    ("net_cxgbe", "process_responses", &VALID),
    ("net_cxgbevf", "process_responses", &VALID_UNCOUNTED),
    ("net_e1000_em", "eth_em_recv_scattered_pkts", &VALID),
    ("net_e1000_igb", "eth_igb_recv_scattered_pkts", &VALID),
    ("net_e1000_igb_vf", "eth_igb_recv_scattered_pkts", &VALID_UNCOUNTED),
    // An empty last descriptor is counted as a segment, but not linked.
    ("net_ena", "ena_rx_mbuf", &CHECKED),
    ("net_enic", "enic_recv_pkts_common", &VALID),
    ("net_hinic", "hinic_recv_pkts", &VALID),
    // Since 25.11.
    ("net_hinic3", "hinic3_recv_pkts", &VALID),
    ("net_i40e", "i40e_recv_scattered_pkts", &VALID),
    ("net_iavf", "iavf_recv_scattered_pkts_flex_rxd", &VALID),
    // Before 22.11.3, these two round buffers up to 128 bytes, and the NIC may write past buffers
    // that are no multiple of that. This crate's are multiples unless `data_room_bytes` sets
    // another size.
    ("net_ice", "ice_recv_scattered_pkts", &VALID),
    ("net_ice_dcf", "ice_recv_scattered_pkts", &VALID),
    ("net_igc", "igc_recv_scattered_pkts", &VALID),
    ("net_ixgbe", "ixgbe_recv_pkts_lro", &VALID),
    ("net_ixgbe_vf", "ixgbe_recv_pkts_lro", &VALID_UNCOUNTED),
    ("net_mlx4", "mlx4_rx_burst", &VALID_UNCOUNTED),
    // The driver copies the packets that fit into one mbuf.
    ("net_nfb", "nfb_eth_ndp_rx", &VALID_UNCOUNTED),
    ("net_ngbe", "ngbe_recv_pkts_sc", &VALID),
    // Since 25.11.
    ("net_ngbe_vf", "ngbe_recv_pkts_sc", &VALID_UNCOUNTED),
    // Since 24.11. The source doesn't show whether a descriptor has the length of its part or of
    // the packet so far.
    ("net_r8169", "rtl_recv_scattered_pkts", &CHECKED),
    // Since 25.11. It may report a larger buffer to the NIC than there is, if the size is no
    // multiple of 16.
    ("net_rnp", "rnp_refill_rx_ring", &CHECKED),
    // On some NICs, bad packets are counted as missed. One of its receive functions refuses this
    // crate's pools.
    ("net_sfc_efx", "sfc_ef10_rx_process_event", &VALID_UNCOUNTED),
    // The lengths of a packet and of each segment are fields written by the NIC.
    ("net_thunderx", "nicvf_process_cq_mseg_entry", &CHECKED),
    ("net_txgbe", "txgbe_recv_pkts_lro", &VALID),
    ("net_txgbe_vf", "txgbe_recv_pkts_lro", &VALID_UNCOUNTED),
    // The hypervisor writes the lengths, and the driver does not compare them with the buffer's.
    ("net_vmxnet3", "vmxnet3_recv_pkts", &CHECKED),
    // Since 25.11.
    ("net_xsc", "xsc_rx_burst", &VALID_UNCOUNTED),
];

/// Drivers that were also reviewed, and why they are not in [`FRESH`]: the guarantee does not hold,
/// or the source does not show it.
#[cfg(test)]
const NOT_FRESH: [(&str, &str); 31] = [
    ("mlx5_pci", "mprq_en=1 attaches the buffers of a ring, which several mbufs may share"),
    ("net_ark", "before 25.11 it hands out a chain that the NIC still writes to"),
    (
        "net_avp",
        "it copies the number of bytes that the host gives, and counts the headroom as room",
    ),
    ("net_bnxt", "stopped with a gap past the ring's end, it frees mbufs that it handed out"),
    ("net_cn10k", "it needs a pool in hardware"),
    ("net_cn20k", "it needs a pool in hardware"),
    ("net_cn9k", "it needs a pool in hardware"),
    ("net_cpfl", "it takes buffers in the order of the ring, not by the number that the NIC says"),
    ("net_enetc", "without mbufs for the ring, it hands out again what it handed out before"),
    ("net_enetc4", "as net_enetc"),
    ("net_enetc4_vf", "as net_enetc"),
    ("net_fm10k", "stopped without vectors, it frees mbufs that it handed out"),
    ("net_gve", "before 25.11 as net_cpfl; and its lengths are the host's"),
    ("net_hns3", "22.11 with vectors as net_enetc"),
    ("net_hns3_vf", "22.11 with vectors as net_enetc"),
    ("net_idpf", "as net_cpfl"),
    ("net_ionic", "without an mbuf, it gives the NIC a buffer again that it handed out"),
    ("net_ionic_pci", "as net_ionic"),
    ("net_liovf", "gone after 22.11; not followed through"),
    ("net_mana", "since 24.11 it frees an mbuf twice whose memory it cannot register"),
    ("net_nbl", "stopped, it frees mbufs that it handed out"),
    ("net_nfp_pf", "since 24.11 with vectors, it hands out mbufs of the pool where that is empty"),
    ("net_nfp_vf", "as net_nfp_pf"),
    ("net_ntnic", "it does not say at which port a packet came in"),
    ("net_octeontx", "it needs a pool in hardware"),
    (
        "net_otx_ep",
        "it has several ways to receive, with lengths by firmware; not followed through",
    ),
    ("net_qede", "stopped, it frees mbufs that it handed out"),
    ("net_qede_vf", "as net_qede"),
    ("net_vcpf", "as net_cpfl"),
    ("net_virtio", "vectorized=1 as net_cpfl; and its lengths are the host's"),
    ("net_zxdh", "it gives the NIC the head of a broken chain again, still linked"),
];

#[cfg(test)]
mod tests {
    use super::super::{UNKNOWN, VIRTUAL, of_port};
    use super::{FRESH, NOT_FRESH};
    use std::collections::HashSet;

    #[test]
    fn each_driver_is_named_once() {
        let fresh = FRESH.iter().map(|(name, ..)| *name);
        let other = NOT_FRESH.iter().map(|(name, _)| *name);
        let mut seen = HashSet::new();
        for name in VIRTUAL.iter().map(|driver| driver.name).chain(fresh).chain(other) {
            assert!(seen.insert(name), "{name}");
        }
    }

    #[test]
    fn a_port_is_what_the_tables_say_of_its_driver() {
        for (name, shown_by, driver) in &FRESH {
            let found = of_port(name);
            assert!(found.fresh_mbufs && found == *driver, "{name}");
            assert!(!shown_by.is_empty(), "{name}");
        }
        for (name, why) in &NOT_FRESH {
            assert_eq!(of_port(name), &UNKNOWN, "{name}");
            assert!(!why.is_empty(), "{name}");
        }
        assert!(of_port("net_ice").valid_lengths);
        assert!(!of_port("net_vmxnet3").valid_lengths);
        assert_eq!(of_port("net_none"), &UNKNOWN);
    }
}
