extern "C" __global__ void __launch_bounds__(128) @(const float* a0, float* a1, int64_t n0, int64_t n1, int64_t n2) {
  const int lane = threadIdx.x % 32;
  const int64_t item = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
  if (item >= n0) return;
  const int64_t i0 = item;
  float acc0 = (-INFINITY);
  #pragma unroll 4
  for (int64_t q = lane; q < n2; q += 32) {
    const int64_t i1g = q;
    const int shift = n1 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n1*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n1 - i1b, 4);
    alignas(16) float v0[4];
    p_load<4>(v0, a0 + (n1*i0 + i1b), low, cnt);
    #pragma unroll
    for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
      const int64_t i1 = i1b + u;
      const float t1 = v0[u];
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
  #pragma unroll 4
  for (int64_t q = lane; q < n2; q += 32) {
    const int64_t i1g = q;
    const int shift = n1 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n1*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n1 - i1b, 4);
    alignas(16) float v2[4];
    p_load<4>(v2, a0 + (n1*i0 + i1b), low, cnt);
    #pragma unroll
    for (int u = 0; u < 4; u++) if (u >= low && u < cnt) {
      const int64_t i1 = i1b + u;
      const float t3 = v2[u];
      const float t4 = t3 - r0;
      const float t5 = p_expf(t4);
      acc1 += t5;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  const float r1 = acc1;
  const float t6 = 1.0f / r1;
  const float r2 = t6;
  #pragma unroll 4
  for (int64_t q = lane; q < n2; q += 32) {
    const int64_t i1g = q;
    const int shift = n1 % 4 == 0 ? 0 : (int)((uint64_t)(a0 + (n1*i0)) / 4 % 4);
    const int64_t i1b = i1g * 4 - shift;
    const int low = (int)p_max(-i1b, 0);
    const int cnt = (int)p_min(n1 - i1b, 4);
    alignas(16) float v7[4];
    p_load<4>(v7, a0 + (n1*i0 + i1b), low, cnt);
    alignas(16) float s12[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int64_t i1 = i1b + u;
      const float t8 = v7[u];
      const float t9 = t8 - r0;
      const float t10 = p_expf(t9);
      const float t11 = t10 * r2;
      s12[u] = t11;
    }
    p_store<4>(a1 + (n1*i0 + i1b), s12, low, cnt);
  }
}
