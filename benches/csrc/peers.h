/* The benches' interface to the peers in C. `src/peers/` declares the same in Rust. */

#ifndef HOTLOOP_BENCHES_PEERS_H
#define HOTLOOP_BENCHES_PEERS_H

#include <stddef.h>
#include <stdint.h>

struct rte_ring;
struct peer_hash;

/* A ring for one producer and one consumer with `slots` slots, a power of two; one slot stays
 * empty. Null if there is no memory, or the name is taken. */
struct rte_ring *peer_ring_create(const char *name, unsigned int slots);
void peer_ring_free(struct rte_ring *ring);

/* Sends the numbers 0 to count - 1 in bursts of `batch`, at most 64. */
void peer_ring_produce(struct rte_ring *ring, uint64_t count, unsigned int batch);

/* Receives `count` numbers in bursts of up to `batch`, at most 64, and returns their sum. */
uint64_t peer_ring_consume(struct rte_ring *ring, uint64_t count, unsigned int batch);

/* Both on one core: each burst goes in and comes out again. */
uint64_t peer_ring_by_turns(struct rte_ring *ring, uint64_t count, unsigned int batch);

/* A key of the hash table. */
struct peer_key {
    uint64_t words[2];
};

/* A hash table for `entries` keys, with a value of a cache line for each, all of it in `bytes` bytes
 * of `memory`, which lies on pages of `page_bytes`. Null if it does not fit. */
struct peer_hash *peer_hash_create(const char *name, uint32_t entries, void *memory, size_t bytes,
                                   size_t page_bytes);

/* Gives the memory back to the caller. */
void peer_hash_free(struct peer_hash *hash);

/* Adds a key with a value that begins with `word`. Returns 0, or a negative number if the table is full. */
int peer_hash_add(struct peer_hash *hash, const struct peer_key *key, uint64_t word);

/* Looks up `count` keys in bursts of 64, the largest that DPDK takes. Returns the sum of the
 * first words of the values found. If `now` is not 0, also writes it into each of these values, and raises it by
 * `step` from burst to burst. */
uint64_t peer_hash_find(struct peer_hash *hash, const struct peer_key *keys, size_t count,
                        uint64_t now, uint64_t step);

/* Forwards at least `count` packets from the first queue of one port to that of another, in bursts of
 * `burst`, at most 64, and swaps their Ethernet addresses if `swaps`. Returns their number. */
uint64_t peer_forward(uint16_t from, uint16_t to, uint64_t count, uint16_t burst, int swaps);

/* Receives at least `count` packets from the first queue of a port in bursts of `burst`, at most 64, and frees them.
 * Returns their number. */
uint64_t peer_receive(uint16_t from, uint64_t count, uint16_t burst);

/* Receives up to `burst` packets, at most 64, from the first queue of a port and frees them. Returns the number of
 * datagrams to UDP port `port`, and adds the bytes of their payloads to `bytes`. */
uint64_t peer_sink(uint16_t from, uint16_t burst, uint16_t port, uint64_t *bytes);

/* Receives from the first queue of a port into a ring until `*stop`. Frees packets that the ring has no room for, and
 * those that arrive through `back`, if that is a ring. */
void peer_dispatch(uint16_t from, struct rte_ring *ring, struct rte_ring *back, const int *stop);

/* Sends packets from a ring to the first queue of a port until `*stop`, and swaps Ethernet addresses if `swaps`. Returns
 * the number sent. */
uint64_t peer_work(struct rte_ring *ring, uint16_t to, int swaps, const int *stop);

/* Counts the datagrams to UDP port `port` that arrive through a ring until `*stop`. Packets are freed, or sent through
 * `back`, if that is a ring. */
uint64_t peer_count(struct rte_ring *ring, struct rte_ring *back, uint16_t port, const int *stop);

/* Frees the remaining mbufs of a ring. */
void peer_free_mbufs(struct rte_ring *ring);

#endif
