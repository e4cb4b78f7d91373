extern "C" __global__ void __launch_bounds__(64) @(const float* a0, const float* a1, const float* a2, float* a3, int64_t n0) {
  const int lane = threadIdx.x;
  const int item = (int)blockIdx.x;
  const int i0 = item;
  float acc0 = 0;
  alignas(16) float v0[4];
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 64;
    if (q >= 36) break;
    const int i2g = q % (9);
    const int qi2 = q / (9);
    const int i1 = qi2;
    const int i2b = i2g * 4;
    p_load_even<4>(v0 + k * 4, a0 + (i2b + 36*i0 + 288*i1));
  }
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 64;
    if (q >= 36) break;
    const int i2g = q % (9);
    const int qi2 = q / (9);
    const int i1 = qi2;
    const int i2b = i2g * 4;
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i2 = i2b + u;
      const float t1 = v0[k * 4 + u];
      acc0 += t1;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 += oacc0;
  }
  __shared__ float xacc0[2];
  if (lane % 32 == 0) xacc0[lane / 32] = acc0;
  __syncthreads();
  acc0 = lane % 32 < 2 ? xacc0[lane % 32] : 0;
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 += oacc0;
  }
  const float r0 = acc0;
  const float t2 = r0 / 144.0f;
  const float r1 = t2;
  float acc1 = 0;
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 64;
    if (q >= 36) break;
    const int i2g = q % (9);
    const int qi2 = q / (9);
    const int i1 = qi2;
    const int i2b = i2g * 4;
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i2 = i2b + u;
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
  __shared__ float xacc1[2];
  if (lane % 32 == 0) xacc1[lane / 32] = acc1;
  __syncthreads();
  acc1 = lane % 32 < 2 ? xacc1[lane % 32] : 0;
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc1 = p_shuffle<32>(acc1, o);
    acc1 += oacc1;
  }
  const float r2 = acc1;
  const float t6 = r2 / 144.0f;
  const float r3 = t6;
  const float t7 = r3 + 9.999999747378752e-06f;
  const float t8 = 1.0f / sqrtf(t7);
  const float r4 = t8;
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 64;
    if (q >= 36) break;
    const int i2g = q % (9);
    const int qi2 = q / (9);
    const int i1 = qi2;
    const int i2b = i2g * 4;
    const float t12 = a1[i0];
    const float t14 = a2[i0];
    alignas(16) float s16[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i2 = i2b + u;
      const float t9 = v0[k * 4 + u];
      const float t10 = t9 - r1;
      const float t11 = t10 * r4;
      const float t13 = t11 * t12;
      const float t15 = t13 + t14;
      s16[u] = t15;
    }
    p_store<4>(a3 + (i2b + 36*i0 + 288*i1), s16);
  }
}
