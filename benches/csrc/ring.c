/* DPDK's ring between one producer and one consumer. */

#include "peers.h"

#include <rte_pause.h>
#include <rte_ring.h>

#define BATCH_MAX 64

struct rte_ring *peer_ring_create(const char *name, unsigned int slots)
{
    return rte_ring_create(name, slots, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

void peer_ring_free(struct rte_ring *ring)
{
    rte_ring_free(ring);
}

/* Single items have functions of their own, as in any program that sends them one by one. */
static void produce_singly(struct rte_ring *ring, uint64_t count)
{
    for (uint64_t next = 0; next < count; next++)
        while (rte_ring_sp_enqueue(ring, (void *)(uintptr_t)next) != 0)
            rte_pause();
}

void peer_ring_produce(struct rte_ring *ring, uint64_t count, unsigned int batch)
{
    void *items[BATCH_MAX];

    if (batch == 1) {
        produce_singly(ring, count);
        return;
    }
    for (uint64_t next = 0; next < count;) {
        unsigned int left = RTE_MIN(count - next, batch), sent = 0;

        for (unsigned int i = 0; i < left; i++)
            items[i] = (void *)(uintptr_t)(next + i);
        next += left;
        while (left > 0) {
            unsigned int n = rte_ring_sp_enqueue_burst(ring, items + sent, left, NULL);

            if (n == 0)
                rte_pause();
            sent += n;
            left -= n;
        }
    }
}

static uint64_t consume_singly(struct rte_ring *ring, uint64_t count)
{
    uint64_t sum = 0;
    void *item;

    for (uint64_t taken = 0; taken < count; taken++) {
        while (rte_ring_sc_dequeue(ring, &item) != 0)
            rte_pause();
        sum += (uintptr_t)item;
    }
    return sum;
}

uint64_t peer_ring_consume(struct rte_ring *ring, uint64_t count, unsigned int batch)
{
    void *items[BATCH_MAX];
    uint64_t sum = 0;

    if (batch == 1)
        return consume_singly(ring, count);
    for (uint64_t taken = 0; taken < count;) {
        unsigned int n = rte_ring_sc_dequeue_burst(ring, items, batch, NULL);

        if (n == 0)
            rte_pause();
        for (unsigned int i = 0; i < n; i++)
            sum += (uintptr_t)items[i];
        taken += n;
    }
    return sum;
}

uint64_t peer_ring_by_turns(struct rte_ring *ring, uint64_t count, unsigned int batch)
{
    void *in[BATCH_MAX], *out[BATCH_MAX];
    uint64_t sum = 0;

    for (uint64_t first = 0; first < count; first += batch) {
        unsigned int n = RTE_MIN(count - first, batch);

        for (unsigned int i = 0; i < n; i++)
            in[i] = (void *)(uintptr_t)(first + i);
        n = rte_ring_sp_enqueue_burst(ring, in, n, NULL);
        n = rte_ring_sc_dequeue_burst(ring, out, n, NULL);
        for (unsigned int i = 0; i < n; i++)
            sum += (uintptr_t)out[i];
    }
    return sum;
}
