#define _GNU_SOURCE
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <pcap/pcap.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_kvargs.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "version.h"

/* After DPDK's headers: a function or constant that differs between both does not compile. */
#define CONSTANT(type, name, value, theirs) _Static_assert((type)(value) == (theirs), #name);
#include "shim.h"

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
SAME_SIZE(struct sh_xstat, struct rte_eth_xstat);
SAME_SIZE(struct sh_xstat_name, struct rte_eth_xstat_name);
SAME_SIZE(struct sh_instruction, struct bpf_insn);
_Static_assert(offsetof(struct rte_eth_xstat, value) == offsetof(struct sh_xstat, value), "xstat");
_Static_assert(offsetof(struct bpf_insn, k) == offsetof(struct sh_instruction, k), "bpf_insn");

/* Whether DPDK was built with inline functions that check or trace bursts. */
#if defined(RTE_ETHDEV_DEBUG_RX) || defined(RTE_ETHDEV_DEBUG_TX) || \
	defined(RTE_ENABLE_TRACE_FP) || defined(RTE_MBUF_HISTORY_DEBUG)
#define CHECKS_BURSTS true
#else
#define CHECKS_BURSTS false
#endif

/* A filter's result for a matching frame, above the length of any. Only 0 or not 0 matters. */
#define MATCHED_BYTES 262144

/* `RawMbuf` in mbuf.rs is this struct; a DPDK that moves a field does not compile. */
#define AT(field, offset) _Static_assert(offsetof(struct rte_mbuf, field) == (offset), #field)
AT(buf_addr, 0);
AT(data_off, 16);
AT(refcnt, 18);
AT(nb_segs, 20);
AT(port, 22);
AT(ol_flags, 24);
AT(packet_type, 32);
AT(pkt_len, 36);
AT(data_len, 40);
AT(vlan_tci, 42);
AT(hash, 44);
AT(vlan_tci_outer, 52);
AT(buf_len, 54);
AT(pool, 56);
AT(next, 64);
AT(tx_offload, 72);
AT(shinfo, 80);
AT(priv_size, 88);
AT(timesync, 90);
AT(dynfield1, 92);
_Static_assert(sizeof(struct rte_mbuf) == 128, "size of rte_mbuf");
_Static_assert(_Alignof(struct rte_mbuf) == 64, "alignment of rte_mbuf");
_Static_assert(sizeof(((struct rte_mbuf *)0)->hash) == 8, "size of rte_mbuf's hash union");

/* Callbacks, which a program may add but hotloop never does, are looked up before the driver's call instead of after it:
 * then no value is kept across the call, which becomes a jump. */
static __rte_noinline uint16_t rx_burst_with_callbacks(uint16_t port, uint16_t queue,
		struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

static __rte_noinline uint16_t tx_burst_with_callbacks(uint16_t port, uint16_t queue,
		struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

uint16_t sh_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	const struct rte_eth_fp_ops *ops = &rte_eth_fp_ops[port];

	if (CHECKS_BURSTS || unlikely(ops->rxq.clbk[queue] != NULL))
		return rx_burst_with_callbacks(port, queue, mbufs, count);
	return ops->rx_pkt_burst(ops->rxq.data[queue], mbufs, count);
}

uint16_t sh_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	const struct rte_eth_fp_ops *ops = &rte_eth_fp_ops[port];

	if (CHECKS_BURSTS || unlikely(ops->txq.clbk[queue] != NULL))
		return tx_burst_with_callbacks(port, queue, mbufs, count);
	return ops->tx_pkt_burst(ops->txq.data[queue], mbufs, count);
}

int sh_rx_queue_count(uint16_t port, uint16_t queue)
{
	if (!counts_rx_queue(port))
		return -ENOTSUP;
	return rte_eth_rx_queue_count(port, queue);
}

struct rte_mbuf *sh_mbuf_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

int sh_mbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int count)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

void sh_mbuf_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

void sh_mbuf_free_owned(struct rte_mbuf *mbuf)
{
	if (likely(mbuf->nb_segs == 1 && RTE_MBUF_DIRECT(mbuf)))
		sh_mbuf_free_singles(mbuf->pool, &mbuf, 1);
	else
		rte_pktmbuf_free(mbuf);
}

void sh_mbuf_free_singles(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int count)
{
#if defined(RTE_LIBRTE_MBUF_DEBUG) || defined(RTE_MBUF_HISTORY_DEBUG)
	/* These builds trace each mbuf when it is freed. */
	(void)pool;
	rte_pktmbuf_free_bulk(mbufs, count);
#else
	rte_mempool_put_bulk(pool, (void *const *)mbufs, count);
#endif
}

uint16_t sh_ext_refcnt(const struct rte_mbuf *mbuf)
{
	return rte_mbuf_ext_refcnt_read(mbuf->shinfo);
}

int sh_errno(void)
{
	return rte_errno;
}

unsigned int sh_lcore_id(void)
{
	return rte_lcore_id();
}

int sh_visit_lcores(int (*visit)(void *null))
{
	int error = rte_eal_mp_remote_launch(visit, NULL, SKIP_MAIN);

	if (error == 0)
		rte_eal_mp_wait_lcore();
	return error;
}

void sh_mempool_flush_cache(struct rte_mempool *pool, unsigned int lcore)
{
	struct rte_mempool_cache *cache = rte_mempool_default_cache(pool, lcore);

	if (cache != NULL)
		rte_mempool_cache_flush(cache, pool);
}

int sh_mempool_take(struct rte_mempool *pool, void **object)
{
	return rte_mempool_generic_get(pool, object, 1, NULL);
}

void sh_mempool_put(struct rte_mempool *pool, void *object)
{
	rte_mempool_generic_put(pool, &object, 1, NULL);
}

struct rte_mempool *sh_mempool_packed(const char *name, unsigned int count,
		unsigned int cache_count, uint16_t data_room_bytes, int node, const char *operations)
{
	struct rte_pktmbuf_pool_private private = { .mbuf_data_room_size = data_room_bytes };
	unsigned int mbuf_bytes = sizeof(struct rte_mbuf) + data_room_bytes;
	struct rte_mempool *pool = rte_mempool_create_empty(name, count, mbuf_bytes, cache_count,
			sizeof(private), node, RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	int error;

	if (pool == NULL)
		return NULL;
	error = rte_mempool_set_ops_byname(pool, operations, NULL);
	if (error == 0) {
		rte_pktmbuf_pool_init(pool, &private);
		error = rte_mempool_populate_default(pool);
	}
	if (error < 0) {
		rte_mempool_free(pool);
		rte_errno = -error;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

/* The node that the kernel has put an address on. EAL only knows it for hugepages: without them it
 * assumes node 0 for all memory. */
static int node_of(void *address)
{
	int node;

	if (syscall(SYS_get_mempolicy, &node, NULL, 0, address, MPOL_F_NODE | MPOL_F_ADDR) != 0)
		return SOCKET_ID_ANY;
	return node;
}

static void add_chunk(struct rte_mempool *pool, void *sum, struct rte_mempool_memhdr *chunk,
		unsigned int index)
{
	const struct rte_memseg_list *list = rte_mem_virt2memseg_list(chunk->addr);
	uint64_t page_bytes = list == NULL ? 0 : list->page_sz;
	int node = node_of(chunk->addr);
	struct sh_memory *memory = sum;

	(void)pool;
	memory->bytes += chunk->len;
	if (index == 0) {
		memory->page_bytes = page_bytes;
		memory->node = node;
	}
	if (page_bytes < memory->page_bytes)
		memory->page_bytes = page_bytes;
	if (node != memory->node)
		memory->node = SOCKET_ID_ANY;
}

struct sh_memory sh_mempool_memory(struct rte_mempool *pool)
{
	struct sh_memory memory = { .node = SOCKET_ID_ANY };

	rte_mempool_mem_iter(pool, add_chunk, &memory);
	return memory;
}

struct rte_mbuf *sh_ring_take(struct rte_ring *ring)
{
	void *mbuf = NULL;

	return rte_ring_dequeue(ring, &mbuf) == 0 ? mbuf : NULL;
}

bool sh_capture_is_empty(const char *path)
{
	char error[PCAP_ERRBUF_SIZE];
	struct pcap_pkthdr header;
	pcap_t *capture = pcap_open_offline(path, error);
	bool is_empty;

	if (capture == NULL)
		return false; /* the driver reports why it cannot be read */
	is_empty = pcap_next(capture, &header) == NULL;
	pcap_close(capture);
	return is_empty;
}

int sh_kvargs(const char *arguments,
		void (*each)(void *cookie, const char *key, const char *value), void *cookie)
{
	struct rte_kvargs *found = rte_kvargs_parse(arguments, NULL);
	unsigned int i;

	if (found == NULL)
		return -1;
	for (i = 0; i < found->count; i++)
		each(cookie, found->pairs[i].key, found->pairs[i].value);
	rte_kvargs_free(found);
	return 0;
}

struct sh_port_info sh_port_info(uint16_t port)
{
	struct rte_eth_dev_info found;
	int error = rte_eth_dev_info_get(port, &found);

	if (error != 0)
		return (struct sh_port_info) { .error = error };
	return (struct sh_port_info) {
		.driver_name = found.driver_name,
		.rss_fields = found.flow_type_rss_offloads,
		.interface = found.if_index,
		.frame_bytes_max = found.max_rx_pktlen,
		.rx_buffer_bytes_min = found.min_rx_bufsize,
		.rx_queue_count_max = found.max_rx_queues,
		.tx_queue_count_max = found.max_tx_queues,
		.rss_key_bytes = found.hash_key_size,
		.scatters = found.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER,
		.gathers = found.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS,
	};
}

int sh_port_mac(uint16_t port, uint8_t *six_bytes)
{
	struct rte_ether_addr address;
	int error = rte_eth_macaddr_get(port, &address);

	if (error == 0)
		memcpy(six_bytes, &address, sizeof(address));
	return error;
}

int sh_port_set_mac(uint16_t port, const uint8_t *six_bytes)
{
	struct rte_ether_addr address;

	memcpy(&address, six_bytes, sizeof(address));
	return rte_eth_dev_default_mac_addr_set(port, &address);
}

int sh_link(uint16_t port, uint32_t *speed_mbps, bool *up, bool *full_duplex)
{
	struct rte_eth_link link;
	int error;

	memset(&link, 0, sizeof(link));
	error = rte_eth_link_get_nowait(port, &link);
	*speed_mbps = link.link_speed;
	*up = link.link_status == RTE_ETH_LINK_UP;
	*full_duplex = link.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
	return error;
}

int sh_port_configure(uint16_t port, const struct sh_port_config *config)
{
	struct rte_eth_conf wanted;

	memset(&wanted, 0, sizeof(wanted));
	wanted.rxmode.mtu = config->mtu;
	if (config->scatters)
		wanted.rxmode.offloads = RTE_ETH_RX_OFFLOAD_SCATTER;
	if (config->gathers)
		wanted.txmode.offloads = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (config->rss_fields != 0) {
		wanted.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		wanted.rx_adv_conf.rss_conf.rss_hf = config->rss_fields;
		/* Only read during the call. */
		wanted.rx_adv_conf.rss_conf.rss_key = (uint8_t *)(uintptr_t)config->rss_key;
		wanted.rx_adv_conf.rss_conf.rss_key_len = config->rss_key_bytes;
	}
	return rte_eth_dev_configure(port, config->rx_queue_count, config->tx_queue_count, &wanted);
}

struct sh_port_stats sh_port_stats(uint16_t port)
{
	struct rte_eth_stats found;
	int error = rte_eth_stats_get(port, &found);

	if (error != 0)
		return (struct sh_port_stats) { .error = error };
	return (struct sh_port_stats) {
		.ipackets = found.ipackets,
		.opackets = found.opackets,
		.ibytes = found.ibytes,
		.obytes = found.obytes,
		.imissed = found.imissed,
		.ierrors = found.ierrors,
		.oerrors = found.oerrors,
		.rx_nombuf = found.rx_nombuf,
	};
}

int sh_port_xstats(uint16_t port, struct sh_xstat *values, unsigned int count)
{
	return rte_eth_xstats_get(port, (struct rte_eth_xstat *)values, count);
}

int sh_port_xstat_names(uint16_t port, struct sh_xstat_name *names, unsigned int count)
{
	return rte_eth_xstats_get_names(port, (struct rte_eth_xstat_name *)names, count);
}

int sh_eal_init(int argc, char **argv)
{
#ifdef __GLIBC__
	/* glibc lets a program assign to these. Rust's own buffers are separate. */
	FILE *saved_stdout = stdout;
	FILE *saved_stderr = stderr;
	FILE *nowhere = fopen("/dev/null", "w");
	int result;

	if (nowhere == NULL)
		return rte_eal_init(argc, argv);
	stdout = nowhere;
	stderr = nowhere;
	result = rte_eal_init(argc, argv);
	stdout = saved_stdout;
	stderr = saved_stderr;
	/* Not closed: a thread of EAL may be writing to it. */
	return result;
#else
	return rte_eal_init(argc, argv);
#endif
}

int sh_log_to(sh_write write)
{
	cookie_io_functions_t functions = { .write = write };
	FILE *stream = fopencookie(NULL, "w", functions);

	if (stream != NULL)
		setvbuf(stream, NULL, _IOLBF, BUFSIZ);
	/* Without a stream, DPDK logs to its default. */
	return rte_openlog_stream(stream);
}

int sh_filter(const char *expression, bool optimizes, struct sh_instruction *instructions,
		unsigned int capacity, char *message, size_t message_bytes)
{
	pcap_t *handle = pcap_open_dead(DLT_EN10MB, MATCHED_BYTES);
	struct bpf_program program;
	int count = -1;

	if (handle == NULL) {
		snprintf(message, message_bytes, "no memory for a handle");
		return count;
	}
	/* Without a netmask, `ip broadcast` is refused. */
	if (pcap_compile(handle, &program, expression, optimizes, PCAP_NETMASK_UNKNOWN) == 0) {
		count = program.bf_len;
		if (program.bf_len < capacity)
			capacity = program.bf_len;
		memcpy(instructions, program.bf_insns, capacity * sizeof(*instructions));
		pcap_freecode(&program);
	} else {
		snprintf(message, message_bytes, "%s", pcap_geterr(handle));
	}
	pcap_close(handle);
	return count;
}
