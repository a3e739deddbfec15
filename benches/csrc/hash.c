/* DPDK's hash table, with values beside it. */

#include "peers.h"

#include <stdio.h>
#include <stdlib.h>

#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_malloc.h>
#include <rte_prefetch.h>

#define WINDOW_MAX RTE_HASH_LOOKUP_BULK_MAX

/* The size of a flow's state in a line of its own. */
struct value {
    uint64_t words[5];
    uint64_t seen;
} __rte_cache_aligned;

struct peer_hash {
    struct rte_hash *table;
    struct value *values;
    char heap[32];
    void *memory;
    size_t bytes;
};

/* The two instructions that hash a key, inlined: the table would call a function by its pointer for
 * each key. */
static inline hash_sig_t hash_of(const struct peer_key *key)
{
    return rte_hash_crc_8byte(key->words[1], rte_hash_crc_8byte(key->words[0], 0));
}

static int fill(struct peer_hash *hash, const char *name, uint32_t entries, size_t page_bytes)
{
    /* One core, no lock, no extension: the fastest lookups. */
    struct rte_hash_parameters parameters = {
        .name = name,
        .entries = entries,
        .key_len = sizeof(struct peer_key),
        .hash_func = rte_hash_crc,
    };

    if (rte_malloc_heap_create(hash->heap) != 0)
        return -1;
    if (rte_malloc_heap_memory_add(hash->heap, hash->memory, hash->bytes, NULL, 0, page_bytes) != 0)
        return -1;
    parameters.socket_id = rte_malloc_heap_get_socket(hash->heap);
    hash->table = rte_hash_create(&parameters);
    if (hash->table == NULL)
        return -1;
    hash->values = rte_zmalloc_socket(NULL,
                                      (rte_hash_max_key_id(hash->table) + 1) * sizeof(struct value),
                                      RTE_CACHE_LINE_SIZE, parameters.socket_id);
    return hash->values == NULL ? -1 : 0;
}

struct peer_hash *peer_hash_create(const char *name, uint32_t entries, void *memory, size_t bytes,
                                   size_t page_bytes)
{
    struct peer_hash *hash = calloc(1, sizeof(*hash));

    if (hash == NULL)
        return NULL;
    hash->memory = memory;
    hash->bytes = bytes;
    snprintf(hash->heap, sizeof(hash->heap), "heap_%s", name);
    if (fill(hash, name, entries, page_bytes) != 0) {
        peer_hash_free(hash);
        return NULL;
    }
    return hash;
}

void peer_hash_free(struct peer_hash *hash)
{
    rte_free(hash->values);
    rte_hash_free(hash->table);
    rte_malloc_heap_memory_remove(hash->heap, hash->memory, hash->bytes);
    rte_malloc_heap_destroy(hash->heap);
    free(hash);
}

int peer_hash_add(struct peer_hash *hash, const struct peer_key *key, uint64_t word)
{
    int32_t position = rte_hash_add_key_with_hash(hash->table, key, hash_of(key));

    if (position < 0)
        return position;
    hash->values[position].words[0] = word;
    return 0;
}

/* Inlined into its callers, once with stamps and once without. */
static __rte_always_inline uint64_t find(struct peer_hash *hash, const struct peer_key *keys,
                                         size_t count, int stamps, uint64_t now, uint64_t step)
{
    const void *places[WINDOW_MAX];
    hash_sig_t hashes[WINDOW_MAX];
    int32_t positions[WINDOW_MAX];
    uint64_t sum = 0;

    for (size_t begin = 0; begin < count; begin += WINDOW_MAX) {
        unsigned int n = RTE_MIN(count - begin, (size_t)WINDOW_MAX);

        for (unsigned int i = 0; i < n; i++) {
            places[i] = &keys[begin + i];
            hashes[i] = hash_of(&keys[begin + i]);
        }
        rte_hash_lookup_with_hash_bulk(hash->table, places, hashes, n, positions);
        for (unsigned int i = 0; i < n; i++)
            if (positions[i] >= 0)
                rte_prefetch0(&hash->values[positions[i]]);
        for (unsigned int i = 0; i < n; i++) {
            if (positions[i] < 0)
                continue;
            sum += hash->values[positions[i]].words[0];
            if (stamps)
                hash->values[positions[i]].seen = now;
        }
        now += step;
    }
    return sum;
}

uint64_t peer_hash_find(struct peer_hash *hash, const struct peer_key *keys, size_t count,
                        uint64_t now, uint64_t step)
{
    if (now == 0)
        return find(hash, keys, count, 0, 0, 0);
    return find(hash, keys, count, 1, now, step);
}
