extern "C" __global__ void __launch_bounds__(128) @(const float* a0, float* a1, int64_t n0) {
  const int lane = threadIdx.x % 32;
  const int item = (int)blockIdx.x * 4 + threadIdx.x / 32;
  if (item >= n0) return;
  const int i0 = item;
  float acc0 = (-INFINITY);
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
      acc0 = p_nan_max(acc0, t1);
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 = p_nan_max(acc0, oacc0);
  }
  const float r0 = acc0;
  float acc1 = 0;
  float w0[4];
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 32;
    if (q >= 24) break;
    const int i1g = q;
    const int i1b = i1g * 4;
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i1 = i1b + u;
      const float t2 = v0[k * 4 + u];
      const float t3 = t2 - r0;
      const float t4 = p_expf(t3);
      w0[k * 4 + u] = t4;
      acc1 += t4;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  const float r1 = acc1;
  const float t5 = 1.0f / r1;
  const float r2 = t5;
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 32;
    if (q >= 24) break;
    const int i1g = q;
    const int i1b = i1g * 4;
    alignas(16) float s7[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i1 = i1b + u;
      const float t6 = w0[k * 4 + u] * r2;
      s7[u] = t6;
    }
    p_store<4>(a1 + (i1b + 96*i0), s7);
  }
}
