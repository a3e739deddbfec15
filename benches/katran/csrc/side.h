// The benchmark's interface to Katran in the kernel.
#pragma once
#include <stdint.h>

struct setup {
  const char *katran, *driver; /* their object files */
  uint32_t services, backends, connections;
  uint8_t head[64]; /* the frame of flow 0 */
};

struct counts {
  uint64_t packets, misses, fallbacks, sent;
};

struct side;

/* Returns 0 if this process may load BPF programs; otherwise side_why has the reason. */
int side_probe(void);

/* Loads Katran and the driver, and configures both. NULL: side_why has the reason. */
struct side *side_open(const struct setup *);
void side_close(struct side *);

/* The reason why the last call failed. */
const char *side_why(void);

/* Selects the following packets, with these TCP flags: of random flows below `end`, or one of each flow from `first` on. */
void side_dial(struct side *, uint32_t first, uint32_t end, uint32_t is_random, uint32_t flags);

/* The nanoseconds of `count` packets, driver included: the median of `segments` (at most 16) times one after the other,
   after `warm` packets, and before one more. With Katran, or with a program that only sends. Negative: side_why has the
   reason. */
double side_play(struct side *, uint64_t warm, uint64_t count, uint32_t segments, int with_katran);

/* Copies the last packet sent, at most 256 bytes. Returns its length. */
uint32_t side_packet(const struct side *, uint8_t *bytes);

/* Reads Katran's counts since it was loaded. Returns 0, or side_why has the reason. */
int side_counts(const struct side *, struct counts *);
