extern "C" __global__ void __launch_bounds__(256) @(const float* a0, const float* a1, float* a2, int64_t n0) {
  const int item = (int)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int i0g = item;
  const int i0b = i0g * 4;
  alignas(16) float v0[4];
  p_load_even<4>(v0, a0 + (i0b));
  alignas(16) float v6[4];
  p_load_even<4>(v6, a1 + (i0b));
  alignas(16) float s9[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int i0 = i0b + u;
    const float t1 = v0[u];
    const float t2 = -t1;
    const float t3 = p_expf(t2);
    const float t4 = t3 + 1.0f;
    const float t5 = t1 / t4;
    const float t7 = v6[u];
    const float t8 = t5 * t7;
    s9[u] = t8;
  }
  p_store<4>(a2 + (i0b), s9);
}
