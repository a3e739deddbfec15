/* testpmd's loops between two ports, io and macswap, without testpmd around them. */

#include "peers.h"

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_vect.h>

#define BURST_MAX 64

/* Swaps the addresses of the frame at `frame`, which has 16 bytes at least. */
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

uint64_t peer_forward(uint16_t from, uint16_t to, uint64_t count, uint16_t burst, int swaps)
{
    struct rte_mbuf *mbufs[BURST_MAX];
    uint64_t done = 0;

    while (done < count) {
        uint16_t received = rte_eth_rx_burst(from, 0, mbufs, burst), sent;

        for (uint16_t i = 0; swaps && i < received; i++) {
            if (i + 1 < received)
                rte_prefetch0(rte_pktmbuf_mtod(mbufs[i + 1], void *));
            swap_addresses(rte_pktmbuf_mtod(mbufs[i], void *));
        }
        sent = rte_eth_tx_burst(to, 0, mbufs, received);
        if (sent < received)
            rte_pktmbuf_free_bulk(mbufs + sent, received - sent);
        done += received;
    }
    return done;
}
