/* What Rust cannot reach in DPDK's headers: inline functions, thread-local variables, constants made
 * by macros, and structs whose fields move between versions. */
#ifndef HOTLOOP_DPDK_SHIM_H
#define HOTLOOP_DPDK_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <pcap/pcap.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_malloc.h>
#include <rte_memory.h>
#include <rte_kvargs.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "version.h"

/* The packet path: one call a burst. */
uint16_t sh_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t sh_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
int sh_rx_queue_count(uint16_t port, uint16_t queue);
struct rte_mbuf *sh_mbuf_alloc(struct rte_mempool *pool);
int sh_mbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int count);
void sh_mbuf_free(struct rte_mbuf *mbuf);
uint16_t sh_ext_refcnt(const struct rte_mbuf *mbuf);

/* Thread-local variables of EAL. */
int sh_errno(void);
unsigned int sh_lcore_id(void);

/* Mempools, past the caller's own cache. */
void sh_mempool_flush_cache(struct rte_mempool *pool, unsigned int lcore);
int sh_mempool_take(struct rte_mempool *pool, void **object);
void sh_mempool_put(struct rte_mempool *pool, void *object);

/* What the memory of a pool's chunks is. */
struct sh_memory {
	uint64_t bytes;
	/* Of the smallest pages among them; 0 where EAL does not know those of one. */
	uint64_t page_bytes;
	/* The NUMA node of all of them, or SH_SOCKET_ID_ANY. */
	int node;
};
struct sh_memory sh_mempool_memory(struct rte_mempool *pool);

/* The mbuf at the head of a ring of mbufs, or NULL; for a ring with one consumer, the caller. */
struct rte_mbuf *sh_ring_take(struct rte_ring *ring);

/* Whether libpcap reads a capture file and finds no packet in it, as net_pcap would. */
bool sh_capture_is_empty(const char *path);

/* The link, whose struct has become a union in later versions. */
int sh_link(uint16_t port, uint32_t *speed_mbps, bool *up, bool *full_duplex);

/* rte_eal_init without what it prints besides its log: its usage text to stdout, alerts to stderr. */
int sh_eal_init(int argc, char **argv);
/* A stream each write to which calls `write`; never closed. */
typedef intptr_t (*sh_write)(void *cookie, const char *text, size_t length);
FILE *sh_stream(sh_write write);
/* Sends DPDK's log to `stream`. */
int sh_log_to(FILE *stream);

static const unsigned int SH_LCORE_ID_ANY = LCORE_ID_ANY;
static const unsigned int SH_LCORE_MAX = RTE_MAX_LCORE;
static const int SH_SOCKET_ID_ANY = SOCKET_ID_ANY;
static const unsigned int SH_PKTMBUF_HEADROOM = RTE_PKTMBUF_HEADROOM;
static const unsigned int SH_MEMPOOL_CACHE_MAX = RTE_MEMPOOL_CACHE_MAX_SIZE;
static const unsigned int SH_MEMPOOL_NO_IOVA_CONTIG = RTE_MEMPOOL_F_NO_IOVA_CONTIG;
static const unsigned int SH_QUEUES_PER_PORT_MAX = RTE_MAX_QUEUES_PER_PORT;
static const uint16_t SH_MBUF_PORT_INVALID = RTE_MBUF_PORT_INVALID;
static const unsigned int SH_DEVICE_STRING_BYTES_MAX = DEVICE_STRING_BYTES_MAX;
static const unsigned int SH_EAL_FORMATS_LOG = EAL_FORMATS_LOG;
static const unsigned int SH_DEVICE_NAME_MAX = RTE_ETH_NAME_MAX_LEN;
static const unsigned int SH_KVARGS_MAX = RTE_KVARGS_MAX;
static const unsigned int SH_RING_NAME_MAX = RTE_RING_NAMESIZE;
static const int SH_LOG_ERR = RTE_LOG_ERR;
static const int SH_LOG_WARNING = RTE_LOG_WARNING;

static const uint64_t SH_MBUF_INDIRECT = RTE_MBUF_F_INDIRECT;
static const uint64_t SH_MBUF_EXTERNAL = RTE_MBUF_F_EXTERNAL;

static const uint32_t SH_RX_MQ_NONE = RTE_ETH_MQ_RX_NONE;
static const uint32_t SH_RX_MQ_RSS = RTE_ETH_MQ_RX_RSS;
static const uint64_t SH_RSS_IP = RTE_ETH_RSS_IP;
static const uint64_t SH_RSS_TCP = RTE_ETH_RSS_TCP;
static const uint64_t SH_RSS_UDP = RTE_ETH_RSS_UDP;

static const uint64_t SH_RX_SCATTER = RTE_ETH_RX_OFFLOAD_SCATTER;
static const uint64_t SH_TX_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;

#endif
