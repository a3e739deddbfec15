/* A UDP sink: parses Ethernet, IPv4 or IPv6, and UDP; checks lengths and port; counts; frees. */

#include "peers.h"
#include "work.h"

#define BURST_MAX 64

uint64_t peer_sink(uint16_t from, uint16_t burst, uint16_t port, uint64_t *bytes)
{
    struct rte_mbuf *mbufs[BURST_MAX];
    uint16_t received = rte_eth_rx_burst(from, 0, mbufs, burst);
    uint64_t count = count_datagrams(mbufs, received, port, bytes);

    rte_pktmbuf_free_bulk(mbufs, received);
    return count;
}
