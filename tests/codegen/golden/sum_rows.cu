extern "C" __global__ void __launch_bounds__(512) @(const float* a0, float* a1, int64_t n0) {
  const int lane = threadIdx.x;
  const int item = (int)blockIdx.x;
  const int i0 = item;
  float acc0 = 0;
  alignas(16) float v0[4];
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 512;
    const int i1g = q;
    const int i1b = i1g * 4;
    p_load_even<4>(v0 + k * 4, a0 + (i1b + 2048*i0));
  }
  #pragma unroll
  for (int k = 0; k < 1; k++) {
    const int q = lane + k * 512;
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
  __shared__ float xacc0[16];
  if (lane % 32 == 0) xacc0[lane / 32] = acc0;
  __syncthreads();
  acc0 = lane % 32 < 16 ? xacc0[lane % 32] : 0;
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const float oacc0 = p_shuffle<32>(acc0, o);
    acc0 += oacc0;
  }
  const float r0 = acc0;
  __syncthreads();
  if (lane == 0) {
    a1[i0] = r0;
  }
}
