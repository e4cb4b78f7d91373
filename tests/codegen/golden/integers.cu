extern "C" __global__ void __launch_bounds__(256) @(const int64_t* a0, int64_t* a1, int64_t n0) {
  const int item = (int)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int i0g = item;
  const int i0b = i0g * 2;
  alignas(16) int64_t v0[2];
  p_load_even<2>(v0, a0 + (i0b));
  alignas(16) int64_t s6[2];
  #pragma unroll
  for (int u = 0; u < 2; u++) {
    const int i0 = i0b + u;
    const int64_t t1 = v0[u];
    const int64_t t2 = (t1 / 3 - ((t1 % 3 != 0) & ((t1 < 0) != (3 < 0))));
    const int64_t t3 = (t2 % 5 + (5 & -((t2 % 5 != 0) & ((t2 % 5 < 0) != (5 < 0)))));
    const int64_t t4 = t1 << 1;
    const int64_t t5 = t3 + t4;
    s6[u] = t5;
  }
  p_store<2>(a1 + (i0b), s6);
}
