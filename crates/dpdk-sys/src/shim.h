/* Everything that hotloop calls in DPDK and libpcap, in plain C. The same for every version, like `bindings.rs`, which
 * bindgen makes from this file. `shim.c` also includes DPDK's headers, so that the compiler compares both. */
#ifndef HOTLOOP_DPDK_SHIM_H
#define HOTLOOP_DPDK_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rte_eth_rxconf;
struct rte_eth_txconf;
struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

/* `shim.c` compares `value` with `theirs`. */
#ifndef CONSTANT
#define CONSTANT(type, name, value, theirs) static const type name = value;
#endif

CONSTANT(unsigned int, SH_LCORE_ID_ANY, 0xFFFFFFFF, LCORE_ID_ANY)
CONSTANT(int, SH_SOCKET_ID_ANY, -1, SOCKET_ID_ANY)
CONSTANT(uint16_t, SH_MBUF_PORT_INVALID, 0xFFFF, RTE_MBUF_PORT_INVALID)
CONSTANT(unsigned int, SH_DEVICE_NAME_MAX, 64, RTE_ETH_NAME_MAX_LEN)
CONSTANT(unsigned int, SH_KVARGS_MAX, 32, RTE_KVARGS_MAX)
CONSTANT(unsigned int, SH_RING_NAME_MAX, 29, RTE_RING_NAMESIZE)
CONSTANT(int, SH_LOG_ERR, 4, RTE_LOG_ERR)
CONSTANT(int, SH_LOG_WARNING, 5, RTE_LOG_WARNING)
CONSTANT(uint64_t, SH_MBUF_INDIRECT, 1ULL << 62, RTE_MBUF_F_INDIRECT)
CONSTANT(uint64_t, SH_MBUF_EXTERNAL, 1ULL << 61, RTE_MBUF_F_EXTERNAL)
CONSTANT(uint64_t, SH_RSS_IP, 0xA38C, RTE_ETH_RSS_IP)
CONSTANT(uint64_t, SH_RSS_TCP, 0x10410, RTE_ETH_RSS_TCP)
CONSTANT(uint64_t, SH_RSS_UDP, 0x20820, RTE_ETH_RSS_UDP)

/* The packet path: one call a burst. */
uint16_t sh_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t sh_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
int sh_rx_queue_count(uint16_t port, uint16_t queue);
struct rte_mbuf *sh_mbuf_alloc(struct rte_mempool *pool);
int sh_mbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int count);
void sh_mbuf_free(struct rte_mbuf *mbuf);
/* Frees an mbuf with no owner but the caller. Reads one cache line of a single mbuf. */
void sh_mbuf_free_owned(struct rte_mbuf *mbuf);
/* Frees single mbufs of this pool, with their own buffers and no owner but the caller, without reading them. */
void sh_mbuf_free_singles(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int count);
uint16_t sh_ext_refcnt(const struct rte_mbuf *mbuf);
struct rte_mbuf *rte_pktmbuf_copy(const struct rte_mbuf *mbuf, struct rte_mempool *pool,
		uint32_t offset, uint32_t length);

/* Threads, and thread-local variables of EAL. */
int sh_errno(void);
unsigned int sh_lcore_id(void);
int rte_thread_register(void);
void rte_thread_unregister(void);
/* Calls `visit` on each lcore but the main one, the caller, and waits until all have returned. */
int sh_visit_lcores(int (*visit)(void *null));
int rte_eal_alarm_set(uint64_t us, void (*callback)(void *argument), void *argument);

/* Mempools. */
struct rte_mempool *rte_pktmbuf_pool_create_by_ops(const char *name, unsigned int count,
		unsigned int cache_count, uint16_t private_bytes, uint16_t data_room_bytes, int node,
		const char *operations);
/* The same without the flag that makes DPDK put one mbuf in each 4 KiB page if there are no hugepages. */
struct rte_mempool *sh_mempool_packed(const char *name, unsigned int count,
		unsigned int cache_count, uint16_t data_room_bytes, int node, const char *operations);
unsigned int rte_mempool_avail_count(const struct rte_mempool *pool);
/* Past the caller's own cache. */
void sh_mempool_flush_cache(struct rte_mempool *pool, unsigned int lcore);
int sh_mempool_take(struct rte_mempool *pool, void **object);
void sh_mempool_put(struct rte_mempool *pool, void *object);

/* The memory of a pool's chunks. */
struct sh_memory {
	uint64_t bytes;
	/* Size of the smallest pages among them; 0 if EAL does not know those of a chunk. */
	uint64_t page_bytes;
	/* The NUMA node of all of them, or SH_SOCKET_ID_ANY. */
	int node;
};
struct sh_memory sh_mempool_memory(struct rte_mempool *pool);

/* Devices. */
int rte_eal_hotplug_add(const char *bus, const char *device, const char *arguments);
int rte_eal_hotplug_remove(const char *bus, const char *device);
/* Calls `each` with every key and value that drivers find in `arguments`. Returns -1 if they find none. */
int sh_kvargs(const char *arguments,
		void (*each)(void *cookie, const char *key, const char *value), void *cookie);
/* Whether libpcap reads a capture file and finds no packet in it, as net_pcap would. */
bool sh_capture_is_empty(const char *path);
struct rte_ring *rte_ring_lookup(const char *name);
void rte_ring_free(struct rte_ring *ring);
/* The mbuf at the head of a ring of mbufs, or NULL; for a ring with one consumer, the caller. */
struct rte_mbuf *sh_ring_take(struct rte_ring *ring);

/* Ports. */
struct sh_port_info {
	/* 0, or a negative errno; the rest is 0 then. */
	int error;
	/* The driver's own text, or NULL. */
	const char *driver_name;
	uint64_t rss_fields;
	uint32_t interface;
	uint32_t frame_bytes_max;
	uint32_t rx_buffer_bytes_min;
	uint16_t rx_queue_count_max;
	uint16_t tx_queue_count_max;
	uint8_t rss_key_bytes;
	bool scatters;
	bool gathers;
};
struct sh_port_info sh_port_info(uint16_t port);
int rte_eth_dev_get_port_by_name(const char *name, uint16_t *port);
int rte_eth_dev_socket_id(uint16_t port);
int sh_port_mac(uint16_t port, uint8_t *six_bytes);
int sh_port_set_mac(uint16_t port, const uint8_t *six_bytes);
int rte_eth_dev_get_mtu(uint16_t port, uint16_t *mtu);
int sh_link(uint16_t port, uint32_t *speed_mbps, bool *up, bool *full_duplex);

struct sh_port_config {
	/* RSS, unless there are none. */
	uint64_t rss_fields;
	const uint8_t *rss_key;
	uint8_t rss_key_bytes;
	bool scatters;
	bool gathers;
	/* 0 for the driver's own. */
	uint16_t mtu;
	uint16_t rx_queue_count;
	uint16_t tx_queue_count;
};
int sh_port_configure(uint16_t port, const struct sh_port_config *config);
int rte_eth_dev_adjust_nb_rx_tx_desc(uint16_t port, uint16_t *rx, uint16_t *tx);
int rte_eth_rx_queue_setup(uint16_t port, uint16_t queue, uint16_t descriptors, unsigned int node,
		const struct rte_eth_rxconf *config, struct rte_mempool *pool);
int rte_eth_tx_queue_setup(uint16_t port, uint16_t queue, uint16_t descriptors, unsigned int node,
		const struct rte_eth_txconf *config);
int rte_eth_dev_start(uint16_t port);
int rte_eth_dev_stop(uint16_t port);
int rte_eth_dev_close(uint16_t port);
int rte_eth_promiscuous_enable(uint16_t port);

/* Fields of rte_eth_stats. */
struct sh_port_stats {
	/* 0, or a negative errno. */
	int error;
	uint64_t ipackets;
	uint64_t opackets;
	uint64_t ibytes;
	uint64_t obytes;
	uint64_t imissed;
	uint64_t ierrors;
	uint64_t oerrors;
	uint64_t rx_nombuf;
};
struct sh_port_stats sh_port_stats(uint16_t port);
struct sh_xstat {
	uint64_t id;
	uint64_t value;
};
struct sh_xstat_name {
	char name[64];
};
int sh_port_xstats(uint16_t port, struct sh_xstat *values, unsigned int count);
int sh_port_xstat_names(uint16_t port, struct sh_xstat_name *names, unsigned int count);

/* rte_eal_init without its output besides the log: usage text on stdout, alerts on stderr. */
int sh_eal_init(int argc, char **argv);
/* Passes DPDK's log output to `write` from now on. */
typedef ssize_t (*sh_write)(void *null, const char *text, size_t length);
int sh_log_to(sh_write write);
int rte_log_cur_msg_loglevel(void);
const char *rte_strerror(int error);
int rte_mbuf_dyn_rx_timestamp_register(int *field_offset, uint64_t *flag);

/* An instruction of a filter: bpf_insn. */
struct sh_instruction {
	uint16_t code;
	uint8_t jt;
	uint8_t jf;
	uint32_t k;
};
/* Compiles a filter of Ethernet frames. Returns its number of instructions and stores up to `capacity` of them, or returns
 * -1 with a message, which is cut to `message_bytes`. */
int sh_filter(const char *expression, bool optimizes, struct sh_instruction *instructions,
		unsigned int capacity, char *message, size_t message_bytes);

#endif
