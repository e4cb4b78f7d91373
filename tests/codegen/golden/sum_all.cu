extern "C" __global__ void __launch_bounds__(1024) @(const float* a0, float* a1, int64_t n0) {
  const int lane = threadIdx.x;
  const int item = (int)blockIdx.x;
  float acc0 = 0;
  alignas(16) float v0[32];
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int q = lane + k * 1024;
    const int i0g = q;
    const int i0b = i0g * 4;
    p_load_even<4>(v0 + k * 4, a0 + (i0b));
  }
  #pragma unroll
  for (int k = 0; k < 8; k++) {
    const int q = lane + k * 1024;
    const int i0g = q;
    const int i0b = i0g * 4;
    #pragma unroll
    for (int u = 0; u < 4; u++) {
      const int i0 = i0b + u;
      const float t1 = v0[k * 4 + u];
      acc0 += t1;
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 += oacc0;
  }
  __shared__ float xacc0[32];
  if (lane % 32 == 0) xacc0[lane / 32] = acc0;
  __syncthreads();
  acc0 = xacc0[lane % 32];
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 += oacc0;
  }
  const float r0 = acc0;
  __syncthreads();
  if (lane == 0) {
    a1[0] = r0;
  }
}
