/* testpmd's loops, rxonly, io and macswap, without testpmd around them. */

#include "peers.h"

#include <rte_mbuf.h>

#include "work.h"

#define BURST_MAX 64

uint64_t peer_forward(uint16_t from, uint16_t to, uint64_t count, uint16_t burst, int swaps)
{
    struct rte_mbuf *mbufs[BURST_MAX];
    uint64_t done = 0;

    while (done < count) {
        uint16_t received = rte_eth_rx_burst(from, 0, mbufs, burst);

        pass_on(to, mbufs, received, swaps);
        done += received;
    }
    return done;
}

uint64_t peer_receive(uint16_t from, uint64_t count, uint16_t burst)
{
    struct rte_mbuf *mbufs[BURST_MAX];
    uint64_t done = 0;

    while (done < count) {
        uint16_t received = rte_eth_rx_burst(from, 0, mbufs, burst);

        rte_pktmbuf_free_bulk(mbufs, received);
        done += received;
    }
    return done;
}
