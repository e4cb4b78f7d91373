extern "C" __global__ void __launch_bounds__(256) @(const float* a0, float* a1, int64_t n0) {
  const int item = (int)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int i0g = item;
  const int i0b = i0g * 4;
  alignas(16) float v0[4];
  p_load_even<4>(v0, a0 + (i0b));
  alignas(16) float s4[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int i0 = i0b + u;
    const float t1 = v0[u];
    const float t2 = p_normal_cdff(t1);
    const float t3 = t1 * t2;
    s4[u] = t3;
  }
  p_store<4>(a1 + (i0b), s4);
}
