extern "C" __global__ void __launch_bounds__(128) @(const float* a0, uint8_t* a1, int64_t n0) {
  const int lane = threadIdx.x % 32;
  const int item = (int)blockIdx.x * 4 + threadIdx.x / 32;
  if (item >= n0) return;
  const int i0 = item;
  int32_t acc0 = 0;
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
      const _Bool t2 = t1 > 0.0f;
      acc0 |= (t2 != 0);
    }
  }
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    const int32_t oacc0 = p_shuffle<32>(acc0, o);
    acc0 |= (oacc0 != 0);
  }
  const _Bool r0 = acc0;
  __syncwarp(p_lanes<32>());
  if (lane == 0) {
    a1[i0] = r0;
  }
}
