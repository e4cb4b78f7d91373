// Enough of CUDA C on a CPU to run generated kernels: the blocks of a grid one after another, the threads of a block (or of
// a cluster of blocks) as fibers that take turns at barriers and shuffles (or one after another where a kernel has neither).
// Blocks of a cluster share what `__shared__` declares, and wait for all of them at any barrier.
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#undef signbit
#undef INFINITY
#undef NAN
#define int64_t shim_int64_t  // the C library's is `long`, the kernels' is `long long`
#define uint64_t shim_uint64_t
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __shared__ static
#define __int_as_float(x) shim_bits<float, int>(x)
#define __uint_as_float(x) shim_bits<float, unsigned>(x)
#define __float_as_int(x) shim_bits<int, float>(x)
#define __double_as_longlong(x) shim_bits<long long, double>(x)

#define __fmaf_rn fmaf

struct shim_dim { unsigned x, y, z; };
struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static shim_dim threadIdx, blockIdx, blockDim, gridDim;

template <class A, class B> static inline A shim_bits(B b) { A a; memcpy(&a, &b, sizeof a); return a; }

enum { SHIM_THREADS = 8192, SHIM_STACK = 1 << 16 };
static ucontext_t shim_main, shim_fiber[SHIM_THREADS];
static char* shim_stacks;
static bool shim_done[SHIM_THREADS], shim_fibers;
static unsigned shim_now, shim_alive, shim_arrived, shim_turn, shim_first;
static long shim_shuffles[SHIM_THREADS];
static double shim_slot[2][SHIM_THREADS];
static int shim_error;  // 1: a check failed; 2: threads wait for each other for ever; 3: a shuffle with
// lanes that are not there
static jmp_buf shim_way_out;
static void (*shim_body)();

static void shim_yield() {
  const unsigned me = shim_now;
  swapcontext(&shim_fiber[me], &shim_main);
}
static void shim_fail(int error) {
  shim_error = error;
  if (!shim_fibers) longjmp(shim_way_out, 1);
  swapcontext(&shim_fiber[shim_now], &shim_main);
}
static inline void __trap() { shim_fail(1); }
static inline void __syncthreads() {
  const unsigned turn = shim_turn;
  shim_arrived++;
  while (shim_turn == turn) shim_yield();
}
// Waits until all lanes of the mask that run have come as far.
static inline void shim_meet(unsigned mask) {
  const unsigned me = shim_now, first = me & ~31u;
  const long mine = ++shim_shuffles[me];
  if (!(mask >> (me & 31) & 1)) shim_fail(3);
  for (unsigned k = 0; k < 32; k++)
    while ((mask >> k & 1) && !shim_done[first + k] && shim_shuffles[first + k] < mine) shim_yield();
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) { shim_meet(mask); }
template <class T> static inline T __shfl_xor_sync(unsigned mask, T x, int o) {
  const unsigned me = shim_now;
  const int side = shim_shuffles[me] & 1;
  memcpy(&shim_slot[side][me], &x, sizeof x);
  shim_meet(mask);
  T y;
  if (shim_shuffles[me ^ o] < shim_shuffles[me] || !(mask >> ((me ^ o) & 31) & 1)) shim_fail(3);
  memcpy(&y, &shim_slot[side][me ^ o], sizeof y);
  return y;
}
template <class T, class U> static inline T atomicAdd(T* at, U x) { T old = *at; *at = old + (T)x; return old; }
template <class T, class U, class V> static inline T atomicCAS(T* at, U seen, V now) {
  T old = *at;
  if (old == (T)seen) *at = (T)now;
  return old;
}

static void shim_enter() {
  shim_body();
  shim_done[shim_now] = true;
  shim_alive--;
  swapcontext(&shim_fiber[shim_now], &shim_main);
}
static void shim_block(unsigned threads) {
  shim_alive = threads, shim_arrived = 0;
  for (unsigned t = 0; t < (threads + 31 & ~31u); t++) shim_done[t] = t >= threads, shim_shuffles[t] = 0;
  for (unsigned t = 0; t < threads; t++) {
    getcontext(&shim_fiber[t]);
    shim_fiber[t].uc_stack.ss_sp = shim_stacks + (size_t)t * SHIM_STACK;
    shim_fiber[t].uc_stack.ss_size = SHIM_STACK;
    shim_fiber[t].uc_link = 0;
    makecontext(&shim_fiber[t], shim_enter, 0);
  }
  for (long rounds = 0; shim_alive && !shim_error; rounds++) {
    for (unsigned t = 0; t < threads && !shim_error; t++)
      if (!shim_done[t]) {
        shim_now = t, threadIdx.x = t % blockDim.x, blockIdx.x = shim_first + t / blockDim.x;
        swapcontext(&shim_main, &shim_fiber[t]);
      }
    if (shim_alive && shim_arrived == shim_alive) shim_arrived = 0, shim_turn++;
    if (rounds > 1000000) shim_error = 2;
  }
}
static int shim_run(void (*body)(), const unsigned* grid, unsigned threads, bool fibers, unsigned cluster = 1) {
  shim_body = body, shim_fibers = fibers, shim_error = 0;
  if (!shim_stacks) shim_stacks = (char*)malloc((size_t)SHIM_THREADS * SHIM_STACK);
  gridDim = {grid[0], grid[1], grid[2]}, blockDim = {threads, 1, 1};
  if (!fibers && setjmp(shim_way_out)) return shim_error;
  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x = 0; x < grid[0] && !shim_error; x += cluster) {
        blockIdx = {x, y, z};
        shim_first = x;
        if (fibers) shim_block(threads * cluster);
        else for (unsigned t = 0; t < threads; t++) shim_now = t, threadIdx.x = t, body();
      }
  return shim_error;
}
