/* Operations on frames for the loops in C. */

#ifndef HOTLOOP_BENCHES_WORK_H
#define HOTLOOP_BENCHES_WORK_H

#include <netinet/in.h>

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_udp.h>
#include <rte_vect.h>

/* Swaps the addresses of the frame at `frame`, which has at least 16 bytes. */
static inline void swap_addresses(void *frame)
{
#ifdef __SSSE3__
    const __m128i order = _mm_set_epi8(15, 14, 13, 12, 5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 7, 6);
    __m128i head = _mm_loadu_si128(frame);

    _mm_storeu_si128(frame, _mm_shuffle_epi8(head, order));
#else
    struct rte_ether_hdr *header = frame;
    struct rte_ether_addr first;

    rte_ether_addr_copy(&header->dst_addr, &first);
    rte_ether_addr_copy(&header->src_addr, &header->dst_addr);
    rte_ether_addr_copy(&first, &header->src_addr);
#endif
}

/* Sends a burst, whose addresses it swaps if `swaps`, and frees what has no room. Returns the number sent. */
static inline uint16_t pass_on(uint16_t to, struct rte_mbuf **mbufs, uint16_t count, int swaps)
{
    uint16_t sent;

    for (uint16_t i = 0; swaps && i < count; i++) {
        if (i + 1 < count)
            rte_prefetch0(rte_pktmbuf_mtod(mbufs[i + 1], void *));
        swap_addresses(rte_pktmbuf_mtod(mbufs[i], void *));
    }
    sent = rte_eth_tx_burst(to, 0, mbufs, count);
    if (sent < count)
        rte_pktmbuf_free_bulk(mbufs + sent, count - sent);
    return sent;
}

/* Returns the payload's bytes in a datagram to `port`, or -1. */
static inline int payload_bytes(const struct rte_mbuf *mbuf, uint16_t port)
{
    const struct rte_ether_hdr *ether = rte_pktmbuf_mtod(mbuf, const struct rte_ether_hdr *);
    uint32_t left = rte_pktmbuf_data_len(mbuf), header;
    const struct rte_udp_hdr *udp;

    if (left < sizeof(*ether))
        return -1;
    left -= sizeof(*ether);
    if (ether->ether_type == RTE_BE16(RTE_ETHER_TYPE_IPV4)) {
        const struct rte_ipv4_hdr *ip = (const void *)(ether + 1);
        uint32_t total;

        if (left < sizeof(*ip) || (ip->version_ihl >> 4) != 4)
            return -1;
        header = (ip->version_ihl & 0xf) * 4;
        total = rte_be_to_cpu_16(ip->total_length);
        if (header < sizeof(*ip) || total < header || total > left)
            return -1;
        if (ip->next_proto_id != IPPROTO_UDP || (ip->fragment_offset & RTE_BE16(0x3fff)) != 0)
            return -1;
        left = total - header;
        udp = (const void *)((const uint8_t *)ip + header);
    } else if (ether->ether_type == RTE_BE16(RTE_ETHER_TYPE_IPV6)) {
        const struct rte_ipv6_hdr *ip = (const void *)(ether + 1);

        if (left < sizeof(*ip) || ip->proto != IPPROTO_UDP)
            return -1;
        if (rte_be_to_cpu_16(ip->payload_len) > left - sizeof(*ip))
            return -1;
        left = rte_be_to_cpu_16(ip->payload_len);
        udp = (const void *)(ip + 1);
    } else {
        return -1;
    }
    header = left < sizeof(*udp) ? 0 : rte_be_to_cpu_16(udp->dgram_len);
    if (header < sizeof(*udp) || header > left || udp->dst_port != rte_cpu_to_be_16(port))
        return -1;
    return (int)(header - sizeof(*udp));
}

/* Counts the datagrams to `port` among `count` packets, and adds the bytes of their payloads to `bytes`. */
static inline uint64_t count_datagrams(struct rte_mbuf **mbufs, uint16_t count, uint16_t port,
                                       uint64_t *bytes)
{
    uint64_t datagrams = 0;

    for (uint16_t i = 0; i < count; i++) {
        int payload;

        if (i + 1 < count)
            rte_prefetch0(rte_pktmbuf_mtod(mbufs[i + 1], void *));
        payload = payload_bytes(mbufs[i], port);
        if (payload >= 0) {
            datagrams++;
            *bytes += (uint64_t)payload;
        }
    }
    return datagrams;
}

#endif
