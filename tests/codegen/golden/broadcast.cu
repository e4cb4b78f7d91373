extern "C" __global__ void __launch_bounds__(256) @(const float* a0, const float* a1, float* a2, int64_t n0) {
  const int item = (int)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int i1g = item % (24);
  const int qi1 = item / (24);
  const int i0 = qi1;
  const int i1b = i1g * 4;
  alignas(16) float v0[4];
  p_load_even<4>(v0, a0 + (i1b + 96*i0));
  alignas(16) float v2[4];
  p_load_even<4>(v2, a1 + (i1b));
  alignas(16) float s6[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int i1 = i1b + u;
    const float t1 = v0[u];
    const float t3 = v2[u];
    const float t4 = t1 * t3;
    const float t5 = t4 + 1.0f;
    s6[u] = t5;
  }
  p_store<4>(a2 + (i1b + 96*i0), s6);
}
