extern "C" __global__ void __launch_bounds__(256) @(const float* a0, const float* a1, float* a2, int64_t n0) {
  const int item = (int)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int i0g = item;
  const int i0b = i0g * 4;
  alignas(16) float v0[4];
  p_load_even<4>(v0, a0 + (i0b));
  alignas(16) float v2[4];
  p_load_even<4>(v2, a1 + (i0b));
  alignas(16) float s7[4];
  #pragma unroll
  for (int u = 0; u < 4; u++) {
    const int i0 = i0b + u;
    const float t1 = v0[u];
    const float t3 = v2[u];
    const _Bool t4 = t1 > t3;
    const float t5 = t3 - 1.0f;
    const float t6 = t4 ? t1 : t5;
    s7[u] = t6;
  }
  p_store<4>(a2 + (i0b), s7);
}
