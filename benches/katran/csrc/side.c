// Katran's XDP program in the kernel, which BPF_PROG_TEST_RUN runs through driver.bpf.c. The benchmark compiles this file
// as a shared object when it runs, so that nothing else of the project needs libbpf.
#include "side.h"
#include "state.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Katran's own numbers (balancer_consts.h). */
enum { MAX_VIPS = 512, RING_SIZE = 65537, CPUS_MAX = 128, LRU_CNTRS = 0, FALLBACK_LRU_CNTR = 3, XDP_TX_CNTR = 17 };

/* Katran's vip_definition, vip_meta, real_definition and lb_stats; the bytes of a flow_key and of a real_pos_lru. */
struct vip { uint32_t address[4]; uint16_t port; uint8_t protocol, pad; };
struct vip_meta { uint32_t flags, number; };
struct real { uint32_t address[4]; uint8_t flags, pad[3]; };
struct lb_stats { uint64_t v1, v2; };
enum { FLOW_KEY_BYTES = 40, REAL_POS_BYTES = 16 };

enum { SEGMENTS_MAX = 16, OUT_BYTES = 256 };

struct side {
  struct bpf_object *katran, *driver;
  int lru, drive_katran, drive_bounce, stats, state_map;
  struct state state;
  uint8_t out[OUT_BYTES];
  uint32_t out_bytes;
};

static char why[512];

const char *side_why(void) { return why; }

static int fail(const char *what) {
  snprintf(why, sizeof why, "%s: %s", what, strerror(errno));
  return -1;
}

static int print(enum libbpf_print_level level, const char *format, va_list rest) {
  return level == LIBBPF_WARN ? vfprintf(stderr, format, rest) : 0;
}

static int put(const struct bpf_object *object, const char *map, const void *key, const void *value) {
  int fd = bpf_object__find_map_fd_by_name(object, map);
  if (fd < 0 || bpf_map_update_elem(fd, key, value, BPF_ANY)) return fail(map);
  return 0;
}

static int program(const struct bpf_object *object, const char *name) {
  const struct bpf_program *found = bpf_object__find_program_by_name(object, name);
  return found ? bpf_program__fd(found) : -1;
}

int side_probe(void) {
  int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "probe", 4, 4, 1, NULL);
  if (fd < 0) return fail("the kernel makes no BPF map");
  close(fd);
  return 0;
}

static int load(struct side *side, const struct setup *setup) {
  side->katran = bpf_object__open_file(setup->katran, NULL);
  if (!side->katran || bpf_object__load(side->katran)) return fail("Katran is not loaded");
  side->driver = bpf_object__open_file(setup->driver, NULL);
  if (!side->driver || bpf_object__load(side->driver)) return fail("the driver is not loaded");
  uint32_t zero = 0, one = 1;
  int katran = program(side->katran, "balancer_ingress"), bounce = program(side->driver, "bounce");
  if (put(side->driver, "targets", &zero, &katran) || put(side->driver, "targets", &one, &bounce)) return -1;
  side->stats = bpf_object__find_map_fd_by_name(side->katran, "stats");
  side->state_map = bpf_object__find_map_fd_by_name(side->driver, ".bss");
  side->drive_katran = program(side->driver, "drive_katran");
  side->drive_bounce = program(side->driver, "drive_bounce");
  if (side->stats < 0 || side->state_map < 0) return fail("a map is missing");
  return 0;
}

/* The next hop, and the backends, which have the numbers from 1 on. */
static int put_backends(const struct side *side, uint32_t backends) {
  uint32_t zero = 0;
  uint8_t mac[8] = {2, 0, 0, 0, 0, 3};
  if (put(side->katran, "ctl_array", &zero, mac)) return -1;
  for (uint32_t number = 1; number <= backends; number++) {
    struct real real = {.address = {__builtin_bswap32(0x0a640000u + number)}};
    if (put(side->katran, "reals", &number, &real)) return -1;
  }
  return 0;
}

/* Each VIP with its ring: all backends, in equal parts, in any order. */
static int put_vips(const struct side *side, uint32_t services, uint32_t backends) {
  static uint32_t keys[RING_SIZE], values[RING_SIZE];
  int rings = bpf_object__find_map_fd_by_name(side->katran, "ch_rings");
  for (uint32_t number = 0; number < services; number++) {
    struct vip vip = {.address = {__builtin_bswap32(0x0ac80000u + number)}, .port = __builtin_bswap16(80), .protocol = 6};
    struct vip_meta meta = {.number = number};
    if (put(side->katran, "vip_map", &vip, &meta)) return -1;
    for (uint32_t at = 0; at < RING_SIZE; at++) {
      keys[at] = number * RING_SIZE + at;
      values[at] = 1 + (at * 2654435761u >> 8) % backends;
    }
    uint32_t count = RING_SIZE;
    if (bpf_map_update_batch(rings, keys, values, &count, NULL)) return fail("ch_rings");
  }
  return 0;
}

/* A single connection table, whichever CPU the program runs on. */
static int put_lru(struct side *side, uint32_t connections) {
  side->lru = bpf_map_create(BPF_MAP_TYPE_LRU_HASH, "lru", FLOW_KEY_BYTES, REAL_POS_BYTES, connections, NULL);
  if (side->lru < 0) return fail("the table of connections is not made");
  for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++)
    if (put(side->katran, "lru_mapping", &cpu, &side->lru)) return -1;
  return 0;
}

struct side *side_open(const struct setup *setup) {
  libbpf_set_print(print);
  struct side *side = calloc(1, sizeof *side);
  if (!side) {
    fail("a side");
    return NULL;
  }
  side->lru = -1;
  memcpy(side->state.head, setup->head, sizeof side->state.head);
  side->state.random = 7;
  side->state.services = setup->services;
  if (load(side, setup) || put_backends(side, setup->backends) || put_vips(side, setup->services, setup->backends) ||
      put_lru(side, setup->connections)) {
    side_close(side);
    return NULL;
  }
  return side;
}

void side_close(struct side *side) {
  bpf_object__close(side->driver);
  bpf_object__close(side->katran);
  if (side->lru >= 0) close(side->lru);
  free(side);
}

void side_dial(struct side *side, uint32_t first, uint32_t end, uint32_t is_random, uint32_t flags) {
  side->state.next = first;
  side->state.end = end;
  side->state.is_random = is_random;
  side->state.flags = flags;
}

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Timing the call from outside would be wrong: before the kernel repeats a program, it waits for RCU, and other programs
   use the CPU and its caches meanwhile. So the driver warms up and takes the times itself, within one call. */
double side_play(struct side *side, uint64_t warm, uint64_t count, uint32_t segments, int with_katran) {
  struct state *state = &side->state;
  uint32_t zero = 0;
  uint8_t in[FRAME_BYTES] = {0};
  segments = segments > SEGMENTS_MAX ? SEGMENTS_MAX : segments;
  uint64_t all = warm + count * segments + 1;
  state->done = state->taken = 0;
  state->mark = warm;
  state->segment = count;
  LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = in, .data_size_in = sizeof in, .data_out = side->out,
              .data_size_out = sizeof side->out, .repeat = (int)all);
  if (bpf_map_update_elem(side->state_map, &zero, state, BPF_ANY)) return fail("the driver's state is not written");
  if (bpf_prog_test_run_opts(with_katran ? side->drive_katran : side->drive_bounce, &options))
    return fail("the program is not run");
  if (bpf_map_lookup_elem(side->state_map, &zero, state)) return fail("the driver's state is not read");
  side->out_bytes = options.data_size_out;
  if (options.retval != 3 || state->done != all || state->taken != segments + 1) {
    snprintf(why, sizeof why, "verdict %u where XDP_TX is 3, %llu of %llu packets, %u of %u times", options.retval,
             (unsigned long long)state->done, (unsigned long long)all, state->taken, segments + 1);
    return -1;
  }
  uint64_t took[SEGMENTS_MAX];
  for (uint32_t at = 0; at < segments; at++) took[at] = state->times_ns[at + 1] - state->times_ns[at];
  qsort(took, segments, sizeof *took, compare);
  return segments ? (double)took[segments / 2] : 0.0;
}

uint32_t side_packet(const struct side *side, uint8_t *bytes) {
  memcpy(bytes, side->out, side->out_bytes);
  return side->out_bytes;
}

/* The sum of a counter over all CPUs. */
static int counter(const struct side *side, uint32_t which, struct lb_stats *sum) {
  int cpus = libbpf_num_possible_cpus();
  struct lb_stats *of_cpus = cpus > 0 ? calloc(cpus, sizeof *of_cpus) : NULL;
  uint32_t key = MAX_VIPS + which;
  *sum = (struct lb_stats){0, 0};
  if (!of_cpus || bpf_map_lookup_elem(side->stats, &key, of_cpus)) {
    free(of_cpus);
    return fail("Katran's counters are not read");
  }
  for (int cpu = 0; cpu < cpus; cpu++) sum->v1 += of_cpus[cpu].v1, sum->v2 += of_cpus[cpu].v2;
  free(of_cpus);
  return 0;
}

int side_counts(const struct side *side, struct counts *counts) {
  struct lb_stats lru, fallback, sent;
  if (counter(side, LRU_CNTRS, &lru) || counter(side, FALLBACK_LRU_CNTR, &fallback) ||
      counter(side, XDP_TX_CNTR, &sent))
    return -1;
  *counts = (struct counts){lru.v1, lru.v2, fallback.v1, sent.v1};
  return 0;
}
