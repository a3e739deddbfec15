// The state of driver.bpf.c, which side.c writes before a run and reads after it.
#pragma once
#include <linux/types.h>

enum { FRAME_BYTES = 64, TIMES_MAX = 32 };

struct state {
  __u64 head[FRAME_BYTES / 8]; /* the frame of flow 0 */
  __u64 random;                /* of the random numbers */
  __u64 done;                  /* packets so far */
  __u64 mark;                  /* before which packet the time is taken next */
  __u64 segment;               /* packets from then until it is taken again */
  __u64 times_ns[TIMES_MAX];
  __u32 taken; /* how many of them */
  __u32 end;   /* random flows are below this */
  __u32 next;  /* the next flow, where they come one after the other */
  __u32 services;
  __u32 is_random;
  __u32 flags; /* TCP's */
};
