// The state of driver.bpf.c, which side.c writes before a run and reads after it.
#pragma once
#include <linux/types.h>

enum { FRAME_BYTES = 64, TIMES_MAX = 32 };

struct state {
  __u64 head[FRAME_BYTES / 8]; /* the frame of flow 0 */
  __u64 random;                /* state of the generator */
  __u64 done;                  /* packets so far */
  __u64 mark;                  /* the packet before which the time is taken next */
  __u64 segment;               /* packets from then until it is taken again */
  __u64 times_ns[TIMES_MAX];
  __u32 taken; /* number of times taken */
  __u32 end;   /* random flows are below this */
  __u32 next;  /* the next flow in sequential order */
  __u32 services;
  __u32 is_random;
  __u32 flags; /* TCP's */
};
