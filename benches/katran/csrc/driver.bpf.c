// Drives an XDP program that BPF_PROG_TEST_RUN repeats. The kernel does not reset the packet between repeats, so before
// each the driver takes off the outer header that the last one left, writes the next frame (the frames and random numbers
// of benches/src/traffic) and then calls the program by a tail call.
//
// The same driver with `bounce` in Katran's place takes the time that is subtracted from Katran's.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "state.h"

struct state state = {};

/* Katran, and `bounce`. */
struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __type(key, __u32);
  __type(value, __u32);
  __uint(max_entries, 2);
} targets SEC(".maps");

#define be16(x) __builtin_bswap16(x)
#define be32(x) __builtin_bswap32(x)

/* The upper half of a product: BPF has no instruction for it. */
static __always_inline __u64 high(__u64 a, __u64 b) {
  __u64 al = (__u32)a, ah = a >> 32, bl = (__u32)b, bh = b >> 32;
  __u64 low = al * bl, one = ah * bl + (low >> 32), two = al * bh + (__u32)one;
  return ah * bh + (one >> 32) + (two >> 32);
}

/* The next random number below `bound`. */
static __always_inline __u32 below(__u32 bound) {
  const __u64 factor = 0xd6e8feb86659fd93ULL;
  state.random += 0x9e3779b97f4a7c15ULL;
  __u64 bits = high(state.random, factor) ^ (state.random * factor);
  return ((bits >> 32) * bound) >> 32;
}

/* Writes the frame of a flow: the first flow's, with this flow's numbers. */
static __always_inline void write_frame(__u8 *frame, __u32 flow) {
  __u32 service = ((__u64)(flow * 0x9e3779b1u) * state.services) >> 32;
  __u32 client = 0xc6130000u - (service & 0xffff0000) + (flow & 0xffff);
  __u32 address = 0x0ac80000u + service;
  __u16 port = 1024 + (flow >> 16);
  __u32 sum = (flow & 0xffff) + (address & 0xffff);
  __u16 balance = ~((sum & 0xffff) + (sum >> 16));
  __u32 sequence = (__u32)(__u16)~port << 16 | balance;
  for (int word = 0; word < FRAME_BYTES / 8; word++)
    ((__u64 *)frame)[word] = state.head[word];
  *(__u16 *)(frame + 18) = be16(balance);
  *(__u32 *)(frame + 26) = be32(client);
  *(__u32 *)(frame + 30) = be32(address);
  *(__u16 *)(frame + 34) = be16(port);
  *(__u32 *)(frame + 38) = be32(sequence);
  frame[47] = state.flags;
  *(__u16 *)(frame + 52) = be16((__u16)~state.flags);
}

static __always_inline int drive(struct xdp_md *ctx, __u32 target) {
  /* Removes the outer header. If there is none, the same call moves nothing, and costs the same. */
  __u32 bytes = ctx->data_end - ctx->data;
  if (bpf_xdp_adjust_head(ctx, (int)bytes - FRAME_BYTES))
    return XDP_ABORTED;
  if (state.done++ == state.mark) {
    state.times_ns[state.taken++ & (TIMES_MAX - 1)] = bpf_ktime_get_ns();
    state.mark += state.segment;
  }
  __u8 *frame = (void *)(long)ctx->data;
  if ((void *)(frame + FRAME_BYTES) > (void *)(long)ctx->data_end)
    return XDP_ABORTED;
  write_frame(frame, state.is_random ? below(state.end) : state.next++);
  bpf_tail_call(ctx, &targets, target);
  return XDP_ABORTED;
}

SEC("xdp") int drive_katran(struct xdp_md *ctx) { return drive(ctx, 0); }

SEC("xdp") int drive_bounce(struct xdp_md *ctx) { return drive(ctx, 1); }

/* Sends each packet unchanged. */
SEC("xdp") int bounce(struct xdp_md *ctx) { return XDP_TX; }

char _license[] SEC("license") = "GPL";
