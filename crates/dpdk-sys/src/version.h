/* What differs between versions of DPDK, decided by the version whose headers are installed. Each
 * difference stands here and nowhere else. */
#ifndef HOTLOOP_DPDK_VERSION_H
#define HOTLOOP_DPDK_VERSION_H

#include <rte_ethdev.h>
#include <rte_version.h>

/* The longest string that rte_dev_probe takes: bus, colon, name, comma and arguments. It puts a copy
 * of it into a message for secondary processes, of 128 bytes with the zero. 22.11 cuts the copy short,
 * which is harmless without such processes. Stable releases of later versions refuse the device: seen in
 * 24.11.8 and 25.11.4. A program built against an older one of them may meet a newer one, by the same
 * name of the library. */
#if RTE_VERSION < RTE_VERSION_NUM(23, 3, 0, 0)
#define DEVICE_STRING_BYTES_MAX 4294967295
#else
#define DEVICE_STRING_BYTES_MAX 127
#endif

/* The first version whose EAL has --log-color and --log-timestamp, and in which --syslog needs no value. */
#if RTE_VERSION < RTE_VERSION_NUM(24, 11, 0, 0)
#define EAL_FORMATS_LOG 0
#else
#define EAL_FORMATS_LOG 1
#endif

/* Whether a cache of a mempool takes from the pool, and gives back to it, half of its size at a time. Before, it
 * was filled to its size, and emptied once it held half as many again. */
#if RTE_VERSION < RTE_VERSION_NUM(26, 7, 0, 0)
#define MEMPOOL_REFILLS_HALF 0
#else
#define MEMPOOL_REFILLS_HALF 1
#endif

/* Whether a port's driver can tell how many packets wait in an RX queue. Up to 24.11 the call fails where
 * it can't; 25.11 puts a function in the driver's place that says 0. It is a symbol for drivers, which is
 * why it is weak here. */
#if RTE_VERSION < RTE_VERSION_NUM(25, 3, 0, 0)
static inline bool counts_rx_queue(uint16_t port)
{
	(void)port;
	return true;
}
#else
__attribute__((weak)) int rte_eth_queue_count_dummy(void *queue);

static inline bool counts_rx_queue(uint16_t port)
{
	return rte_eth_fp_ops[port].rx_queue_count != rte_eth_queue_count_dummy;
}
#endif

#endif
