extern "C" __global__ void __launch_bounds__(128) @(const float* a0, const float* a1, float* a2, int64_t n0) {
  const int lane = threadIdx.x % 32;
  const int item = (int)blockIdx.x * 4 + threadIdx.x / 32;
  if (item >= n0) return;
  const int i0 = item;
  float acc0 = 0;
  alignas(16) float v0[4];
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 32;
    if (q >= 24) break;
    const int i1g = q;
    const int i1b = i1g * 4;
    p_load_even<4>(v0 + k * 4, a0 + (i1b + 96*i0));
  }
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 32;
    if (q >= 24) break;
    const int i1g = q;
    const int i1b = i1g * 4;
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i1 = i1b + u;
      const float t1 = v0[k * 4 + u];
      const float t2 = t1 * t1;
      acc0 += t2;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 += oacc0;
  }
  const float r0 = acc0;
  const float t3 = r0 / 96.0f;
  const float t4 = t3 + 9.999999974752427e-07f;
  const float t5 = 1.0f / sqrtf(t4);
  const float r1 = t5;
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 32;
    if (q >= 24) break;
    const int i1g = q;
    const int i1b = i1g * 4;
    alignas(16) float v8[4];
    p_load_even<4>(v8, a1 + (i1b));
    alignas(16) float s11[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i1 = i1b + u;
      const float t6 = v0[k * 4 + u];
      const float t7 = t6 * r1;
      const float t9 = v8[u];
      const float t10 = t7 * t9;
      s11[u] = t10;
    }
    p_store<4>(a2 + (i1b + 96*i0), s11);
  }
}
