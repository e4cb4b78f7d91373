extern "C" __global__ void __launch_bounds__(256) @(const float* a0, const float* a1, float* a2, int64_t n0) {
  const int item = (int)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int i1g = item % (48);
  const int qi1 = item / (48);
  const int i0 = qi1;
  const int i1b = i1g * 4;
  alignas(16) float v2[4] = {};
  if ((i1b < 96)) p_load_even<4>(v2, a0 + (i1b + 96*i0));
  alignas(16) float v3[4] = {};
  if (!(i1b < 96)) p_load_even<4>(v3, a1 + (i1b + 96*i0 - 96));
  alignas(16) float s5[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int i1 = i1b + u;
    const int64_t t0 = (int64_t)(i1);
    const _Bool t1 = t0 < 96;
    const float t4 = t1 ? v2[u] : (v3[u] * 2.0f);
    s5[u] = t4;
  }
  p_store<4>(a2 + (i1b + 192*i0), s5);
}
