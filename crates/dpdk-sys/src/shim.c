#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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

uint16_t sh_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t sh_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
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

/* The node that the kernel has put an address on. EAL knows it of hugepages alone: without them it
 * calls all memory that of node 0. */
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
		return false; /* the driver says why it cannot be read */
	is_empty = pcap_next(capture, &header) == NULL;
	pcap_close(capture);
	return is_empty;
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

int sh_eal_init(int argc, char **argv)
{
#ifdef __GLIBC__
	/* glibc lets a program store into these. Rust's own are other buffers. */
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
	/* Not closed: a thread of EAL's may be writing to it. */
	return result;
#else
	return rte_eal_init(argc, argv);
#endif
}

FILE *sh_stream(sh_write write)
{
	cookie_io_functions_t functions = { .write = write };
	FILE *stream = fopencookie(NULL, "w", functions);

	if (stream != NULL)
		setvbuf(stream, NULL, _IOLBF, BUFSIZ);
	return stream;
}

int sh_log_to(FILE *stream)
{
	return rte_openlog_stream(stream);
}
