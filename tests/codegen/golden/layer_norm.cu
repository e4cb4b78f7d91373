extern "C" __global__ void __launch_bounds__(128) @(const float* a0, const float* a1, const float* a2, float* a3, int64_t n0) {
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
      acc0 += t1;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 += oacc0;
  }
  const float r0 = acc0;
  const float t2 = r0 / 96.0f;
  const float r1 = t2;
  float acc1 = 0;
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 32;
    if (q >= 24) break;
    const int i1g = q;
    const int i1b = i1g * 4;
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i1 = i1b + u;
      const float t3 = v0[k * 4 + u];
      const float t4 = t3 - r1;
      const float t5 = t4 * t4;
      acc1 += t5;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  const float r2 = acc1;
  const float t6 = r2 / 96.0f;
  const float t7 = t6 + 9.999999747378752e-06f;
  const float t8 = 1.0f / sqrtf(t7);
  const float r3 = t8;
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 32;
    if (q >= 24) break;
    const int i1g = q;
    const int i1b = i1g * 4;
    alignas(16) float v12[4];
    p_load_even<4>(v12, a1 + (i1b));
    alignas(16) float v15[4];
    p_load_even<4>(v15, a2 + (i1b));
    alignas(16) float s18[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i1 = i1b + u;
      const float t9 = v0[k * 4 + u];
      const float t10 = t9 - r1;
      const float t11 = t10 * r3;
      const float t13 = v12[u];
      const float t14 = t11 * t13;
      const float t16 = v15[u];
      const float t17 = t14 + t16;
      s18[u] = t17;
    }
    p_store<4>(a3 + (i1b + 96*i0), s18);
  }
}
