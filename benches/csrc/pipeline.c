/* Two lcores with a ring of DPDK's between them: one receives, the other works and sends, or counts and frees. */

#include "peers.h"

#include <rte_ring.h>

#include "work.h"

#define BURST_MAX 64

static uint16_t take(struct rte_ring *ring, struct rte_mbuf **mbufs)
{
    return rte_ring_sc_dequeue_burst(ring, (void **)mbufs, BURST_MAX, NULL);
}

/* Packets without room are freed. */
static void put(struct rte_ring *ring, struct rte_mbuf **mbufs, uint16_t count)
{
    uint16_t sent = rte_ring_sp_enqueue_burst(ring, (void **)mbufs, count, NULL);

    if (sent < count)
        rte_pktmbuf_free_bulk(mbufs + sent, count - sent);
}

static int has_stopped(const int *stop)
{
    return __atomic_load_n(stop, __ATOMIC_RELAXED);
}

void peer_free_mbufs(struct rte_ring *ring)
{
    struct rte_mbuf *mbufs[BURST_MAX];

    for (uint16_t count; (count = take(ring, mbufs)) > 0;)
        rte_pktmbuf_free_bulk(mbufs, count);
}

void peer_dispatch(uint16_t from, struct rte_ring *ring, struct rte_ring *back, const int *stop)
{
    struct rte_mbuf *mbufs[BURST_MAX];

    while (!has_stopped(stop)) {
        put(ring, mbufs, rte_eth_rx_burst(from, 0, mbufs, BURST_MAX));
        if (back != NULL)
            rte_pktmbuf_free_bulk(mbufs, take(back, mbufs));
    }
}

uint64_t peer_work(struct rte_ring *ring, uint16_t to, int swaps, const int *stop)
{
    struct rte_mbuf *mbufs[BURST_MAX];
    uint64_t done = 0;

    while (!has_stopped(stop)) {
        uint16_t count = take(ring, mbufs);

        done += pass_on(to, mbufs, count, swaps);
    }
    return done;
}

uint64_t peer_count(struct rte_ring *ring, struct rte_ring *back, uint16_t port, const int *stop)
{
    struct rte_mbuf *mbufs[BURST_MAX];
    uint64_t done = 0, bytes = 0;

    while (!has_stopped(stop)) {
        uint16_t count = take(ring, mbufs);

        done += count_datagrams(mbufs, count, port, &bytes);
        if (back != NULL)
            put(back, mbufs, count);
        else
            rte_pktmbuf_free_bulk(mbufs, count);
    }
    return done;
}
