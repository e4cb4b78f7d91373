extern "C" __global__ void __launch_bounds__(256) @(const int64_t* a0, const float* a1, float* a2, int64_t n0) {
  const int64_t item = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int64_t i1g = item - (int64_t)((uint64_t)item / 8) * (8);
  const int64_t qi1 = (int64_t)((uint64_t)item / 8);
  const int64_t i0 = qi1;
  const int64_t i1b = i1g * 4;
  const int64_t t0 = a0[i0];
  const _Bool t1 = t0 < 0;
  const int64_t t2 = t1 ? 50 : t0;
  const int64_t t3 = p_check_index(t2, 50);
  alignas(16) float v4[4];
  p_load_even<4>(v4, a1 + (32*t3 + i1b));
  alignas(16) float s6[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int64_t i1 = i1b + u;
    const float t5 = v4[u];
    s6[u] = t5;
  }
  p_store<4>(a2 + (i1b + 32*i0), s6);
}
