extern "C" __global__ void __launch_bounds__(256) @(const float* a0, const float* a1, float* a2, int64_t n0, int64_t n1) {
  const int64_t item = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int64_t i0g = item;
  const int64_t i0b = i0g * 4;
  const int cnt = (int)p_min(n1 - i0b, 4);
  alignas(16) float v0[4];
  p_load_even<4>(v0, a0 + (i0b), cnt);
  alignas(16) float v2[4];
  p_load_even<4>(v2, a1 + (i0b), cnt);
  alignas(16) float s5[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int64_t i0 = i0b + u;
    const float t1 = v0[u];
    const float t3 = v2[u];
    const float t4 = t1 + t3;
    s5[u] = t4;
  }
  p_store<4>(a2 + (i0b), s5, cnt);
}
