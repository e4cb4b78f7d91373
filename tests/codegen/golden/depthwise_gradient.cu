extern "C" __global__ void __launch_bounds__(256) @(const float* a0, float* a1, int64_t n0) {
  const int item = (int)blockIdx.x * 256 + threadIdx.x;
  if (item >= n0) return;
  const int i2g = item % (7);
  const int qi2 = item / (7);
  const int i1 = qi2 % (14);
  const int qi1 = qi2 / (14);
  const int i0 = qi1;
  const int i2b = i2g * 2;
  const int64_t t0 = (int64_t)(i1);
  const _Bool t1 = t0 >= 1;
  const _Bool t2 = t0 < 13;
  const _Bool t3 = t1 & t2;
  alignas(16) float s10[2];
  #pragma unroll
  for (int u = 0; u < 2; u++) {
    const int i2 = i2b + u;
    const int64_t t4 = (int64_t)(i2);
    const _Bool t5 = t4 >= 1;
    const _Bool t6 = t3 & t5;
    const _Bool t7 = t4 < 13;
    const _Bool t8 = t6 & t7;
    const float t9 = t8 ? a0[12*i1 + i2 + 144*i0 - 13] : 0.0f;
    s10[u] = t9;
  }
  p_store<2>(a1 + (i2b + 14*i1 + 196*i0), s10);
}

extern "C" __global__ void __launch_bounds__(96) @(const float* a0, const float* a1, float* a2, int64_t n0) {
  const int lane = threadIdx.x;
  const int item = (int)blockIdx.x;
  const int i2 = item % (3);
  const int qi2 = item / (3);
  const int i1 = qi2 % (3);
  const int qi1 = qi2 / (3);
  const int i0 = qi1;
  float acc0 = 0;
  alignas(16) float v0[4];
  alignas(16) float v2[4];
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 96;
    if (q >= 72) break;
    const int i5g = q % (3);
    const int qi5 = q / (3);
    const int i4 = qi5 % (12);
    const int qi4 = qi5 / (12);
    const int i3 = qi4;
    const int i5b = i5g * 4;
    p_load_even<4>(v0 + k * 4, a0 + (i5b + 144*i0 + 576*i3 + 12*i4));
    p_load<4>(v2 + k * 4, a1 + (i5b + 196*i0 + 14*i1 + i2 + 784*i3 + 14*i4));
  }
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 96;
    if (q >= 72) break;
    const int i5g = q % (3);
    const int qi5 = q / (3);
    const int i4 = qi5 % (12);
    const int qi4 = qi5 / (12);
    const int i3 = qi4;
    const int i5b = i5g * 4;
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i5 = i5b + u;
      const float t1 = v0[k * 4 + u];
      const float t3 = v2[k * 4 + u];
      const float t4 = t1 * t3;
      acc0 += t4;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 += oacc0;
  }
  __shared__ float xacc0[3];
  if (lane % 32 == 0) xacc0[lane / 32] = acc0;
  __syncthreads();
  acc0 = lane % 32 < 3 ? xacc0[lane % 32] : 0;
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 += oacc0;
  }
  const float r0 = acc0;
  __syncthreads();
  if (lane == 0) {
    a2[9*i0 + 3*i1 + i2] = r0;
  }
}
